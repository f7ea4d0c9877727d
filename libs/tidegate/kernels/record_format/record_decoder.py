"""Decoding of record batches into columns.

Python loops run over batches, kernels over records. Nothing in the bytes is trusted, and nothing is read outside a
batch. A batch that was damaged on the way has a wrong checksum; it raises an EngineError that names the batch. A batch
that is as the producer sent it and cannot be read becomes one row in place of its records, which operators reject.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.contracts.errors import EngineError
from tidegate.contracts.records import (
    BAD_COMPRESSION,
    BAD_RECORDS,
    TOO_LARGE,
    Bytes,
    Int64s,
    Records,
)
from tidegate.kernels.compiled import compiled_in_place, inlined
from tidegate.kernels.record_format.compression import (
    CODE_MASK,
    LARGEST_BATCH_BYTES,
    TooLarge,
    decompress,
)
from tidegate.kernels.record_format.header_block import end_of, next_header
from tidegate.kernels.record_format.record_frames import (
    CONTROL,
    ENVELOPE_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    Frames,
    check_sums,
    damaged_batch,
    frames,
    read_only,
)
from tidegate.kernels.record_format.varint import read_big_endian, read_varint

Mask = npt.NDArray[np.bool_]

SMALLEST_RECORD = 7
_ABORT_MARKER = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoded:
    """The records of a range of offsets, the offset to continue at, and the number of bytes used."""

    records: Records
    next_offset: int
    bytes_used: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Payload:
    """The uncompressed records of the first batches in one buffer: those of batch i are data[start[i]:end[i]].

    `unreadable`: a code per batch, 0 for a batch that can be read so far.
    """

    data: Bytes
    start: Int64s
    end: Int64s
    unreadable: Int64s


def decode(
    raw: bytes | bytearray | memoryview | Bytes, start_offset: int, end_offset: int, aborted: Sequence[tuple[int, int]]
) -> Decoded:
    """Return the committed records with start_offset <= offset < end_offset of the complete batches in the bytes.

    `aborted` has (producer id, first offset) of the aborted transactions, as a read_committed fetch returns them. Their
    batches are skipped, and so are control batches. `next_offset` is the offset after the last complete batch, skipped
    or not, and at most `end_offset`. If any batch is compressed, decoding stops once the records take
    LARGEST_BATCH_BYTES; `next_offset` is then that of the first batch left. If no batch is compressed, the records
    point into `raw`: nothing is copied.

    A batch that cannot be read, or whose records take more than LARGEST_BATCH_BYTES, becomes one row with the code of
    the reason. Raise EngineError, naming a base offset, for damaged batches and for batches older than magic 2.
    """
    data = read_only(np.frombuffer(raw, np.uint8))
    found = frames(data)
    if not len(found.start):
        return Decoded(records=Records.from_rows([]), next_offset=start_offset, bytes_used=0)
    if found.magic.min() != MAGIC:
        raise EngineError("a record batch is older than magic 2", value=f"base offset {found.base_offset[0]}")
    inside = (found.last_offset >= start_offset) & (found.base_offset < end_offset)
    check_sums(data, found.where(inside))
    # rule: aborted-skipped/records
    wanted = found.where(inside & ((found.attributes & CONTROL) == 0) & ~_in_aborted(data, found, aborted))
    payload = _payload(data, wanted)
    taken = len(payload.start)
    stopped = taken < len(wanted.start)
    # rule: position-behind-batch
    behind = int(wanted.base_offset[taken]) if stopped else int(found.last_offset[-1]) + 1
    return Decoded(
        records=_records(payload, wanted.where(np.arange(len(wanted.start)) < taken), start_offset, end_offset),
        next_offset=min(max(behind, start_offset), end_offset),
        bytes_used=int(wanted.start[taken] if stopped else found.end[-1]),
    )


def _in_aborted(data: Bytes, found: Frames, aborted: Sequence[tuple[int, int]]) -> Mask:
    """Return a mask of the batches that belong to aborted transactions.

    A transaction lasts from its first offset to its producer's abort marker; batches are in offset order.
    """
    skipped = np.zeros(len(found.start), np.bool_)
    if not aborted:
        return skipped
    waiting = [(first_offset, producer_id) for producer_id, first_offset in aborted]
    heapq.heapify(waiting)
    aborting: set[int] = set()
    for batch, (last_offset, producer_id, attributes) in enumerate(_producers(found)):
        while waiting and waiting[0][0] <= last_offset:
            aborting.add(heapq.heappop(waiting)[1])
        if producer_id in aborting and attributes & CONTROL:
            if _control_type(data, int(found.start[batch]), int(found.end[batch])) == _ABORT_MARKER:
                # rule: aborted-skipped/ends
                aborting.discard(producer_id)
        elif producer_id in aborting and attributes & TRANSACTIONAL:
            skipped[batch] = True
    return skipped


def _producers(found: Frames) -> Iterable[tuple[int, int, int]]:
    return zip(found.last_offset.tolist(), found.producer_id.tolist(), found.attributes.tolist(), strict=True)


def _control_type(data: Bytes, start: int, end: int) -> int:
    """Return 0 for an abort marker, 1 for a commit marker: the second number in the key of the only record."""
    at = start + ENVELOPE_BYTES
    _length, at = read_varint(data, at, end)
    at = at + 1 if at >= 0 else -1
    for _field in ("timestamp", "offset", "key"):
        length, at = read_varint(data, at, end)
    if at < 0 or length < 4 or end - at < 4:
        raise damaged_batch(int(read_big_endian(data, start, 8)), "it should hold one control record")
    return int(read_big_endian(data, at + 2, 2))


def _payload(data: Bytes, batches: Frames) -> _Payload:
    """Return the records of the batches up to the one with which they take LARGEST_BATCH_BYTES or more."""
    codes = batches.attributes & CODE_MASK
    if not codes.any():
        return _Payload(
            data=data,
            start=batches.start + ENVELOPE_BYTES,
            end=batches.end,
            unreadable=np.zeros(len(codes), np.int64),
        )
    room = np.empty(2 * LARGEST_BATCH_BYTES, np.uint8)  # unwritten memory takes no space
    used, ends, unreadable = 0, [0], []
    for start, end, code in zip(*(column.tolist() for column in _places(batches, codes)), strict=True):
        size, reason = _uncompressed(data[start:end], code, room[used : used + LARGEST_BATCH_BYTES])
        used += size
        ends.append(used)
        unreadable.append(reason)
        if used >= LARGEST_BATCH_BYTES:
            break
    bounds = np.array(ends, np.int64)
    return _Payload(
        data=read_only(room[:used]), start=bounds[:-1], end=bounds[1:], unreadable=np.array(unreadable, np.int64)
    )


def _places(batches: Frames, codes: Int64s) -> tuple[Int64s, ...]:
    return batches.start + ENVELOPE_BYTES, batches.end, codes


def _uncompressed(payload: Bytes, code: int, room: Bytes) -> tuple[int, int]:
    """Write the records to the front of `room`; return their length, and the code of what prevented it (0: nothing)."""
    if code == 0 and len(payload) <= len(room):
        room[: len(payload)] = payload
        return len(payload), 0
    try:
        return decompress(payload, code, room), 0
    except TooLarge:
        # rule: unreadable-batch-rejected
        return 0, TOO_LARGE
    except ValueError:
        # rule: unreadable-batch-rejected
        return 0, BAD_COMPRESSION


def _records(payload: _Payload, batches: Frames, start_offset: int, end_offset: int) -> Records:
    impossible = batches.record_count > (payload.end - payload.start) // SMALLEST_RECORD
    unreadable = np.where((payload.unreadable == 0) & impossible, BAD_RECORDS, payload.unreadable)
    columns = np.empty((8, int(batches.record_count[unreadable == 0].sum())), np.int64)
    count = _read_batches(
        payload.data, payload.start, payload.end, batches, unreadable, start_offset, end_offset, columns
    )
    offset, timestamp, *places = columns[:, :count]
    names = ("key_start", "key_length", "value_start", "value_length", "headers_start", "headers_length")
    records = Records(data=payload.data, offset=offset, timestamp=timestamp, **dict(zip(names, places, strict=True)))
    return _with_unreadable(records, batches, unreadable, start_offset) if unreadable.any() else records


def _with_unreadable(records: Records, batches: Frames, unreadable: Int64s, start_offset: int) -> Records:
    """Return the records with a row for each batch that cannot be read: an empty key, and its offsets as the value."""
    chosen = np.flatnonzero(unreadable)
    texts = [_range_of(batches, batch) for batch in chosen.tolist()]
    length = np.array([len(text) for text in texts], np.int64)
    start = len(records.data) + np.cumsum(length) - length
    none = np.zeros(len(chosen), np.int64)
    added = {
        "offset": np.maximum(batches.base_offset[chosen], start_offset),
        "timestamp": batches.max_timestamp[chosen],
        "key_start": none,
        "key_length": none,
        "value_start": start,
        "value_length": length,
        "headers_start": none,
        "headers_length": none,
    }
    columns: dict[str, Any] = {name: np.concatenate([getattr(records, name), column]) for name, column in added.items()}
    codes = np.concatenate([np.zeros(len(records), np.int8), unreadable[chosen].astype(np.int8)])
    order = np.argsort(columns["offset"], kind="stable")
    return Records(
        data=read_only(np.concatenate([records.data, np.frombuffer(b"".join(texts), np.uint8)])),
        **{name: column[order] for name, column in columns.items()},
        unreadable=codes[order],
    )


def _range_of(batches: Frames, batch: int) -> bytes:
    said = {
        "first_offset": int(batches.base_offset[batch]),
        "last_offset": int(batches.last_offset[batch]),
        "records": int(batches.record_count[batch]),
        "bytes": int(batches.end[batch] - batches.start[batch]),
    }
    return json.dumps(said, separators=(",", ":")).encode()


@compiled_in_place
def _read_batches(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    batches: Frames,
    unreadable: Int64s,
    start_offset: int,
    end_offset: int,
    columns: Int64s,
) -> int:
    """Write the records in the range to the columns, and return how many there are.

    Set the code in `unreadable` for each batch whose records turn out to be unreadable.
    """
    row = 0
    for batch in range(len(starts)):
        if unreadable[batch] == 0:
            last = _read_batch(data, starts[batch], ends[batch], batches, batch, start_offset, end_offset, columns, row)
            if last < 0:
                unreadable[batch] = BAD_RECORDS
            row = max(row, last)
    return row


@inlined
def _read_batch(
    data: Bytes,
    at: int,
    last: int,
    batches: Frames,
    batch: int,
    start_offset: int,
    end_offset: int,
    columns: Int64s,
    row: int,
) -> int:
    """Write the batch's records to the columns from `row` on, and return the row after them.

    Return -1 if the records do not fit the batch.
    """
    previous = -1
    for _record in range(batches.record_count[batch]):
        length, at = read_varint(data, at, last)
        if at < 0 or length < SMALLEST_RECORD - 1 or length > last - at:
            return -1
        end = at + length
        delta_ms, at = read_varint(data, at + 1, end)  # + 1: the attributes, which have no meaning yet
        delta, at = read_varint(data, at, end)
        key_length, key_start = read_varint(data, at, end)
        at = end_of(key_start, key_length, end)
        value_length, value_start = read_varint(data, at, end)
        at = end_of(value_start, value_length, end)
        headers, after = _read_headers(data, at, end)
        if after != end or delta <= previous or delta > batches.last_offset[batch] - batches.base_offset[batch]:
            return -1
        offset = batches.base_offset[batch] + delta
        if start_offset <= offset < end_offset:
            columns[0, row] = offset
            columns[1, row] = batches.base_timestamp[batch] + delta_ms
            if batches.attributes[batch] & LOG_APPEND_TIME:
                columns[1, row] = batches.max_timestamp[batch]
            columns[2, row] = key_start
            columns[3, row] = key_length
            columns[4, row] = value_start
            columns[5, row] = value_length
            columns[6, row] = at
            columns[7, row] = end - at if headers > 0 else 0
            row += 1
        previous = delta
        at = end
    return row if at == last else -1


@inlined
def _read_headers(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number of headers in a block and the position after it; -1 if the block is damaged."""
    count, at = read_varint(data, at, end)
    if at < 0 or count < 0:
        return 0, -1
    for _header in range(count):
        _name, _size, _value, _length, at = next_header(data, at, end)
        if at < 0:
            return 0, -1
    return count, at
