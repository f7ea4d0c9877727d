"""Encoding of columns into record batches.

Keys, values and headers pass through byte for byte; a stamp appends headers to each record. The same columns, stamp and
producer give the same bytes. Python loops run over batches, kernels over records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.errors import EngineError, OutputTooLarge
from tidegate.contracts.naming import (
    HEADER_BATCH,
    HEADER_CAUSE,
    HEADER_ERROR_MESSAGE,
    HEADER_ERROR_OFFSET,
    HEADER_ERROR_PARTITION,
    HEADER_ERROR_TOPIC,
    HEADER_OPERATOR,
    HEADER_PARTITION,
    HEADER_SEQ,
    HEADER_WINDOW_END,
    HEADER_WINDOW_START,
)
from tidegate.contracts.records import NULL_LENGTH, Bytes, Int64s
from tidegate.kernels.compiled import compiled_in_place, inlined
from tidegate.kernels.compiled.words import copy_bytes
from tidegate.kernels.record_format.compression import CODES, compress
from tidegate.kernels.record_format.record_frames import (
    CHECKED_FROM,
    ENVELOPE,
    ENVELOPE_BYTES,
    MAGIC,
    SIZE_END,
    TRANSACTIONAL,
    read_only,
)
from tidegate.kernels.record_format.record_headers import encode_header, varint
from tidegate.kernels.record_format.varint import read_varint, varint_size, write_varint

TARGET_BATCH_BYTES = 2**20
"""A batch is closed at this size: far below the limit of brokers for a request, and large enough to cost nothing."""

_SEQUENCES = 2**31


@dataclass(frozen=True, kw_only=True, eq=False)
class OutgoingColumns:
    """Records to write. `headers` has header blocks (a varint count, then the headers); null: no headers."""

    key: pa.BinaryArray
    value: pa.BinaryArray
    headers: pa.BinaryArray
    timestamp: Int64s


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """Where dead letters were read, and why they are dead letters: `messages` has one for each cause of the stamp."""

    topic: str
    partition: int
    offsets: Int64s
    messages: Sequence[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stamp:
    """The headers that say where records come from.

    Record i has seq `seq[i]` and cause `causes[cause_codes[i]]`. `windows`: starts and ends in ms >= 0, if results of
    windows are written. `origin`: for dead letters. `partition`: of the input that the records were made of, where
    their keys decide in which partition of the output they are.
    """

    operator: str
    batch: int
    seq: Int64s
    cause_codes: npt.NDArray[np.int8]
    causes: Sequence[str]
    windows: tuple[Int64s, Int64s] | None = None
    origin: Origin | None = None
    partition: int | None = None


@dataclass(frozen=True, kw_only=True)
class EncodedBatch:
    """One record batch, as a produce request takes it: a bytearray, which kafka-python copies once less than bytes."""

    data: bytearray
    count: int


class _Binaries(NamedTuple):
    """A column of bytes: item i is data[start[i] : start[i] + length[i]], null where the length is -1."""

    data: Bytes
    start: Int64s
    length: Int64s


class _Columns(NamedTuple):
    key: _Binaries
    value: _Binaries
    headers: _Binaries
    timestamp: Int64s


class _Added(NamedTuple):
    """Headers to append to every record: `header_count` in all, first the numbers, then the choice.

    Header k of `numbers` is `before[k]` and the decimal digits of numbers[k, i]. What stands before the digits is the
    encoded name; before those of the first number, also the headers that all records have in common. Record i gets the
    headers `choices[choice[i]]`.
    """

    header_count: int
    before: _Binaries
    numbers: Int64s
    choices: _Binaries
    choice: npt.NDArray[np.int8]


def encode(
    columns: OutgoingColumns,
    stamp: Stamp | None,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    max_batch_bytes: int,
    transactional: bool = True,
    compression: str = "none",
) -> Iterator[EncodedBatch]:
    """Yield the records, in order, in batches of at most `max_batch_bytes`, each encoded when it is asked for.

    So a batch is sent while a processor's cache still has it, and its memory serves the next one. Sequences count from
    `base_sequence`, modulo 2^31. Without an idempotent producer, id, epoch and sequence are -1. Before the first batch,
    raise OutputTooLarge for a single record that is larger than `max_batch_bytes`, EngineError for a damaged header
    block.
    """
    source, added = _columns(columns), _added(stamp, len(columns.timestamp))
    attributes = CODES[compression] | (TRANSACTIONAL if transactional else 0)
    measures = _measures(source, added)
    for start, end, size in _cuts(source.timestamp, measures[2], max_batch_bytes):
        out = bytearray(size)
        max_timestamp = _write_batch(source, added, measures, start, end, _bytes_of(out))
        # rule: v1-sequence-wraps
        sequence = base_sequence if base_sequence < 0 else (base_sequence + start) % _SEQUENCES
        producer = (producer_id, producer_epoch, sequence)
        yield _sealed(out, attributes, (int(source.timestamp[start]), max_timestamp), producer, end - start)


def _measures(source: _Columns, added: _Added) -> Int64s:
    measures = np.empty((3, len(source.timestamp)), np.int64)
    damaged = _measure(source, added, measures)
    if damaged >= 0:
        raise EngineError("a block of record headers is damaged", value=f"record {damaged}")
    return measures


def _cuts(timestamp: Int64s, content: Int64s, max_batch_bytes: int) -> list[tuple[int, int, int]]:
    """Return for every batch its first record, the record after its last, and its uncompressed size."""
    first, sizes = np.empty_like(timestamp), np.empty_like(timestamp)
    target = min(max_batch_bytes, TARGET_BATCH_BYTES)
    count, refused, size = _cut(timestamp, content, target, max_batch_bytes, first, sizes)
    if refused >= 0:
        raise OutputTooLarge(
            "a record is larger than its output topic accepts",
            value=f"record {refused}, timestamp {timestamp[refused]}: {size} bytes; the limit is {max_batch_bytes}",
            remedy="raise max.message.bytes of the topic and start again; the operator continues from here",
        )
    bounds = [*first[:count].tolist(), len(timestamp)]
    return list(zip(bounds[:-1], bounds[1:], sizes[:count].tolist(), strict=True))


def _sealed(
    out: bytearray, attributes: int, timestamps: tuple[int, int], producer: tuple[int, int, int], count: int
) -> EncodedBatch:
    """Return the batch with its envelope, compressed if that makes it smaller."""
    code = attributes & ~TRANSACTIONAL
    if code:
        packed = compress(_bytes_of(out)[ENVELOPE_BYTES:], code)
        if ENVELOPE_BYTES + len(packed) < len(out):
            out = bytearray(ENVELOPE_BYTES) + packed
        else:
            attributes &= TRANSACTIONAL
    fields = (0, len(out) - SIZE_END, -1, MAGIC, 0, attributes, count - 1, *timestamps, *producer, count)
    ENVELOPE.pack_into(out, 0, *fields)
    crc = google_crc32c.value(_bytes_of(out)[CHECKED_FROM:])
    ENVELOPE.pack_into(out, 0, *fields[:4], crc, *fields[5:])
    return EncodedBatch(data=out, count=count)


def _bytes_of(out: bytearray) -> Bytes:
    """Return the bytes as an array, which writes to them."""
    return np.frombuffer(out, np.uint8)


def _columns(columns: OutgoingColumns) -> _Columns:
    return _Columns(
        key=_from_arrow(columns.key),
        value=_from_arrow(columns.value),
        headers=_from_arrow(columns.headers),
        timestamp=read_only(columns.timestamp),
    )


def _from_arrow(column: pa.BinaryArray) -> _Binaries:
    _validity, offsets, data = column.buffers()
    if not len(column) or offsets is None:
        return _binaries([])
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    length = np.diff(bounds)
    if column.null_count:
        length[column.is_null().to_numpy(zero_copy_only=False)] = NULL_LENGTH
    return _Binaries(read_only(np.frombuffer(data or b"", np.uint8)), bounds[:-1], length)


def _binaries(items: Sequence[bytes]) -> _Binaries:
    length = np.array([len(item) for item in items], np.int64)
    return _Binaries(np.frombuffer(b"".join(items), np.uint8), np.cumsum(length) - length, length)


def _added(stamp: Stamp | None, count: int) -> _Added:
    if stamp is None:
        nothing, no_choice = _binaries([]), read_only(np.empty(0, np.int8))
        return _Added(0, nothing, np.empty((0, count), np.int64), nothing, no_choice)
    constant = [_header(HEADER_OPERATOR, stamp.operator), _header(HEADER_BATCH, str(stamp.batch))]
    if stamp.partition is not None:
        constant.append(_header(HEADER_PARTITION, str(stamp.partition)))
    numbers = {HEADER_SEQ: stamp.seq}
    choices = [[_header(HEADER_CAUSE, cause)] for cause in stamp.causes]
    if stamp.windows is not None:
        numbers |= dict(zip((HEADER_WINDOW_START, HEADER_WINDOW_END), stamp.windows, strict=True))
    if (origin := stamp.origin) is not None:
        constant += [_header(HEADER_ERROR_TOPIC, origin.topic), _header(HEADER_ERROR_PARTITION, str(origin.partition))]
        numbers[HEADER_ERROR_OFFSET] = origin.offsets
        messages = [_header(HEADER_ERROR_MESSAGE, message) for message in origin.messages]
        choices = [[*choice, message] for choice, message in zip(choices, messages, strict=True)]
    first, *others = [varint(len(name)) + name.encode() for name in numbers]
    return _Added(
        header_count=len(constant) + len(numbers) + (1 if stamp.origin is None else 2),
        before=_binaries([b"".join([*constant, first]), *others]),
        numbers=np.stack(list(numbers.values())),
        choices=_binaries([b"".join(choice) for choice in choices]),
        choice=read_only(stamp.cause_codes),
    )


def _header(name: str, value: str) -> bytes:
    return encode_header(name.encode(), value.encode())


@compiled_in_place
def _measure(source: _Columns, added: _Added, measures: Int64s) -> int:
    """Measure each record; return the index of a record with damaged headers (-1: none).

    Row 0 of `measures`: number of the record's own headers. Row 1: where these start. Row 2: the record's size without
    the parts that depend on the batch.
    """
    header_data, header_start, header_length = source.headers
    for record in range(len(source.timestamp)):
        at = header_start[record]
        end = at + max(header_length[record], 0)
        count = 0
        if at < end:
            count, at = read_varint(header_data, at, end)
            if at < 0 or count < 0:
                return record
        size = _field_size(source.key.length[record]) + _field_size(source.value.length[record])
        size += varint_size(count + added.header_count) + end - at
        for k in range(len(added.numbers)):
            size += added.before.length[k] + _field_size(_decimal_length(added.numbers[k, record]))
        if len(added.choice) > 0:
            size += added.choices.length[added.choice[record]]
        measures[0, record] = count
        measures[1, record] = at
        measures[2, record] = size
    return -1


@compiled_in_place
def _cut(
    timestamp: Int64s, content: Int64s, target: int, limit: int, first: Int64s, sizes: Int64s
) -> tuple[int, int, int]:
    """Return the number of batches, a record that is too large (-1: none), and the size of a batch of it alone.

    Write to `first` and `sizes` the first record and the size of each batch: up to `target`, or one record up to
    `limit`.
    """
    batches = 0
    start = 0
    size = 0
    for record in range(len(timestamp)):
        framed = _framed_size(_body_size(content[record], timestamp[record] - timestamp[start], record - start))
        if record == 0 or size + framed > target:
            framed = _framed_size(_body_size(content[record], 0, 0))
            # rule: record-too-large
            if ENVELOPE_BYTES + framed > limit:
                return batches, record, ENVELOPE_BYTES + framed
            start = record
            size = ENVELOPE_BYTES
            first[batches] = record
            batches += 1
        size += framed
        sizes[batches - 1] = size
    return batches, -1, 0


@inlined
def _field_size(length: int) -> int:
    return varint_size(length) + max(length, 0)


@inlined
def _body_size(content: int, delta_ms: int, delta: int) -> int:
    return 1 + varint_size(delta_ms) + varint_size(delta) + content


@inlined
def _framed_size(body: int) -> int:
    return varint_size(body) + body


@compiled_in_place
def _write_batch(source: _Columns, added: _Added, measures: Int64s, start: int, end: int, out: Bytes) -> int:
    """Write the records from `start` to `end` after the room for the envelope; return their largest timestamp."""
    timestamp = source.timestamp
    key_data, key_start, key_length = source.key
    value_data, value_start, value_length = source.value
    header_data, header_start, header_length = source.headers
    before_data, before_start, before_length = added.before
    choice_data, choice_start, choice_length = added.choices
    numbers, choice = added.numbers, added.choice
    at = ENVELOPE_BYTES
    max_timestamp = timestamp[start]
    for record in range(start, end):
        delta_ms = timestamp[record] - timestamp[start]
        max_timestamp = max(max_timestamp, timestamp[record])
        at = write_varint(out, at, _body_size(measures[2, record], delta_ms, record - start))
        out[at] = 0  # attributes, which have no meaning yet
        at = write_varint(out, at + 1, delta_ms)
        at = write_varint(out, at, record - start)
        at = write_varint(out, at, key_length[record])
        at = _copy(out, at, key_data, key_start[record], key_length[record])
        at = write_varint(out, at, value_length[record])
        at = _copy(out, at, value_data, value_start[record], value_length[record])
        at = write_varint(out, at, measures[0, record] + added.header_count)
        own = header_start[record] + max(header_length[record], 0) - measures[1, record]
        at = _copy(out, at, header_data, measures[1, record], own)
        for k in range(len(numbers)):
            at = _copy(out, at, before_data, before_start[k], before_length[k])
            at = _write_decimal(out, at, numbers[k, record])
        if len(choice) > 0:
            at = _copy(out, at, choice_data, choice_start[choice[record]], choice_length[choice[record]])
    return int(max_timestamp)


@inlined
def _copy(out: Bytes, at: int, data: Bytes, start: int, length: int) -> int:
    if length <= 0:
        return at
    copy_bytes(data, start, out, at, length)
    return at + length


@inlined
def _decimal_length(number: int) -> int:
    """Return how many characters the number has in decimal, its sign included."""
    length = 2 if number < 0 else 1
    number = abs(number)
    while number >= 10:
        number //= 10
        length += 1
    return length


@inlined
def _write_decimal(out: Bytes, at: int, number: int) -> int:
    """Write the length of the number in decimal, then its characters, and return the position after them."""
    length = _decimal_length(number)
    at = write_varint(out, at, length)
    first = at
    if number < 0:
        out[at] = ord("-")
        first = at + 1
    number = abs(number)
    for place in range(at + length - 1, first - 1, -1):
        out[place] = 48 + number % 10
        number //= 10
    return at + length
