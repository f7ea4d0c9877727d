"""Windowed keys: the bounds of a window, then the bytes of the key, so that each window has its own key.

The bounds come from a record's headers, or from Kafka's format of windowed keys. For time windows this is the key and
the start; for sessions the key, the end and the start; each bound takes eight bytes, the most significant first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import MAX_TIME, MAX_TIMESTAMP, MAX_WINDOW_END
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.operator import Array
from tidegate.kernels.columns import assemble, binary_column, binary_parts, gather
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import copy_bytes
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.record_format.header_block import next_header
from tidegate.kernels.record_format.varint import read_varint

REASONS = (
    "no window: headers with its bounds are missing",
    "no window: its start and end do not form an interval within the range of time",
    "no window: its key is too short for Kafka's format of windowed keys",
    "it names a window, but windows: none is configured; write windows: headers, or windows: ignore",
)
NO_BOUNDS, BAD_BOUNDS, TOO_SHORT, UNEXPECTED_WINDOWS = 1, 2, 3, 4

BOUNDS_BYTES = 16
START_BYTES, SESSION_BYTES = 8, 16
"""How many bytes Kafka appends to the key of a time window, and to that of a session."""

_START_NAME = np.frombuffer(HEADER_WINDOW_START.encode(), np.uint8)
_END_NAME = np.frombuffer(HEADER_WINDOW_END.encode(), np.uint8)
_ZERO, _NINE, _DIGITS = ord("0"), ord("9"), 19
_MISSING = -2
_NONE = np.zeros(0, np.uint8)


class Bounds(NamedTuple):
    """The windows of records, [start, end) in ms, and a code per row.

    The code is 0 for a record with a window, otherwise 1 + the index in REASONS.
    """

    start: Array
    end: Array
    code: Array


def bounds_of(batch: FlatRecords) -> Bounds:
    """Return the windows that the records' headers name. Of several headers with the same name the last one counts."""
    count = len(batch.offset)
    bounds = Bounds(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int8))
    _read(batch.data, batch.headers_start, batch.headers_length, bounds)
    return bounds


@compiled_in_place
def _read(data: Array, starts: Array, lengths: Array, bounds: Bounds) -> None:
    for row in range(len(starts)):
        start, end = _read_headers(data, wide(starts[row]), wide(starts[row]) + lengths[row])
        if start == _MISSING or end == _MISSING:
            bounds.code[row] = NO_BOUNDS
        elif not _is_window(start, end):
            bounds.code[row] = BAD_BOUNDS
        else:
            bounds.start[row] = start
            bounds.end[row] = end


@inlined
def _is_window(start: int, end: int) -> bool:
    """Return whether this is an interval within the range of time.

    The end of a window that never ends is MAX_TIMESTAMP.
    """
    return bool(0 <= start <= MAX_TIME and start <= end and (end <= MAX_WINDOW_END or end == MAX_TIMESTAMP))


@inlined
def _read_headers(data: Array, at: int, end: int) -> Any:
    """Return the window's bounds from a header block; _MISSING for a missing header, -1 for a header that is not a
    number."""
    bounds = (wide(_MISSING), wide(_MISSING))
    if at == end:
        return bounds
    count, at = read_varint(data, at, end)
    for _ in range(count):
        name, size, value, length, at = next_header(data, at, end)
        if at < 0:
            return bounds
        if _is_named(data, name, size, _START_NAME):
            bounds = (_number(data, value, length), bounds[1])
        elif _is_named(data, name, size, _END_NAME):
            bounds = (bounds[0], _number(data, value, length))
    return bounds


@inlined
def _is_named(data: Array, at: int, length: int, name: Array) -> bool:
    if length != len(name):
        return False
    for place in range(length):
        if data[at + place] != name[place]:
            return False
    return True


@inlined
def _number(data: Array, at: int, length: int) -> Any:
    """Return the decimal number in the bytes; -1 if they contain no number, or one that is too large."""
    if length < 1 or length > _DIGITS:
        return wide(-1)
    number = wide(0)
    for place in range(length):
        digit = data[at + place]
        if digit < _ZERO or digit > _NINE:
            return wide(-1)
        if number > (MAX_TIMESTAMP - (wide(digit) - _ZERO)) // 10:
            return wide(-1)
        number = number * 10 + (wide(digit) - _ZERO)
    return number


def unexpected_windows(batch: FlatRecords) -> Array:
    """Return a code per row: UNEXPECTED_WINDOWS for records whose headers have a window's bounds, otherwise 0."""
    return np.where(bounds_of(batch).code == NO_BOUNDS, 0, UNEXPECTED_WINDOWS).astype(np.int8)


def split_kafka_keys(batch: FlatRecords, size: int | None) -> tuple[FlatRecords, Bounds]:
    """Return the records with plain keys, and the windows that were appended to these keys in Kafka's format.

    `size`: length of time windows, ms; None: the windows are sessions.
    """
    count, added = len(batch.offset), SESSION_BYTES if size is None else START_BYTES
    bounds = Bounds(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int8))
    _split(batch.data, batch.key_start, batch.key_length, -1 if size is None else size, bounds)
    cut = np.where((batch.key_length >= added) & (bounds.code == 0), added, 0)
    return batch._replace(key_length=batch.key_length - cut), bounds


@compiled_in_place
def _split(data: Array, starts: Array, lengths: Array, size: int, bounds: Bounds) -> None:
    for row in range(len(starts)):
        behind = wide(starts[row]) + lengths[row]
        if lengths[row] < 0:
            continue
        if lengths[row] < (SESSION_BYTES if size < 0 else START_BYTES):
            bounds.code[row] = TOO_SHORT
            continue
        start = _big_endian(data, behind - START_BYTES)
        # rule: kafka-window-bytes/size
        end = _big_endian(data, behind - SESSION_BYTES) if size < 0 else min(start, MAX_TIME) + size
        if not _is_window(start, end):
            bounds.code[row] = BAD_BOUNDS
        else:
            bounds.start[row] = start
            bounds.end[row] = end


@inlined
def _big_endian(data: Array, at: int) -> Any:
    number = wide(0)
    for place in range(START_BYTES):
        number = number << 8 | wide(data[at + place])
    return number


def kafka_keys(keys: pa.Array, start: Array, end: Array | None) -> pa.ChunkedArray:
    """Return the keys with their windows in Kafka's format. Without ends, these are time windows."""
    data, starts, lengths = binary_parts(keys)
    # rule: kafka-window-bytes/session
    bounds = np.stack([start] if end is None else [end, start], axis=1).astype(">i8")
    behind = bounds.view(np.uint8).reshape(len(starts), -1)
    whole = np.where(lengths >= 0, lengths + behind.shape[1], lengths)

    def write(rows: slice, content: Array) -> None:
        _append(data, starts[rows], lengths[rows], behind[rows], content)

    return assemble(whole, write)


@compiled_in_place
def _append(data: Array, starts: Array, lengths: Array, behind: Array, content: Array) -> None:
    at = 0
    for row in range(len(starts)):
        if lengths[row] < 0:
            continue
        if lengths[row] > 0:
            copy_bytes(data, starts[row], content, at, lengths[row])
        at += lengths[row]
        for place in range(behind.shape[1]):
            content[at + place] = behind[row, place]
        at += behind.shape[1]


def with_windows(batch: FlatRecords, start: Array, end: Array) -> FlatRecords:
    """Return the records with windowed keys; null keys stay null."""
    present = batch.key_length >= 0
    lengths = np.where(present, batch.key_length + BOUNDS_BYTES, batch.key_length)
    ends = np.cumsum(np.maximum(lengths, 0))
    base = len(batch.data)
    data = np.empty(base + (int(ends[-1]) if len(ends) else 0), np.uint8)
    data[:base] = batch.data
    starts = base + ends - np.maximum(lengths, 0)
    bounds = np.stack([start, end], axis=1).view(np.uint8).reshape(-1, BOUNDS_BYTES)
    _compose(batch, bounds, starts, data)
    data.flags.writeable = starts.flags.writeable = lengths.flags.writeable = False
    return batch._replace(data=data, key_start=starts, key_length=lengths)


@compiled_in_place
def _compose(batch: FlatRecords, bounds: Array, starts: Array, data: Array) -> None:
    for row in range(len(starts)):
        if batch.key_length[row] >= 0:
            for place in range(BOUNDS_BYTES):
                # rule: windows-in-key
                data[starts[row] + place] = bounds[row, place]
            copy_bytes(batch.data, batch.key_start[row], data, starts[row] + BOUNDS_BYTES, batch.key_length[row])


def without_windows(table: pa.Table) -> pa.Table:
    """Return the table with windowed keys in its column `key` replaced by the keys without windows."""
    data, starts, lengths = binary_parts(table["key"])
    lengths = np.where(lengths >= 0, lengths - BOUNDS_BYTES, lengths)
    at = table.schema.get_field_index("key")
    return table.set_column(at, table.schema.field(at), binary_column(data, _NONE, starts + BOUNDS_BYTES, lengths))


def bounds_in(keys: pa.ChunkedArray) -> tuple[Array, Array]:
    """Return the starts and the ends of the windows in a column of windowed keys without nulls."""
    data, starts, _ = binary_parts(keys)
    found = np.empty(BOUNDS_BYTES * len(starts), np.uint8)
    gather(data, _NONE, starts, np.full(len(starts), BOUNDS_BYTES), found)
    bounds = found.view(np.int64).reshape(-1, 2)
    return bounds[:, 0], bounds[:, 1]
