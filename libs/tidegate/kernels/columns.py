"""Conversion of records between flat arrays and Arrow columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH, Records
from tidegate.kernels.compiled import compiled_in_place
from tidegate.kernels.compiled.words import WORD, copy_bytes, prefetch
from tidegate.kernels.payloads import FlatRecords, Located, Payloads, flat_records, locate

CHUNK_BYTES = 2**31 - 1
"""Arrow's binary columns have 32-bit offsets: longer columns are cut into chunks of at most this size."""

_NO_BYTES = np.zeros(0, np.uint8)

AHEAD = 24
"""How many byte strings ahead to prefetch: they lie anywhere in memory, and memory is slow to answer."""


def record_columns(
    payloads: Payloads,
    batch: FlatRecords,
    sources: Array,
    only_key: Array | None = None,
    keys: pa.ChunkedArray | None = None,
) -> dict[str, pa.ChunkedArray]:
    """Copy key, value, headers, timestamp and offset of every source (a row >= 0, or `~slot`) into Arrow columns.

    Where `only_key` is true, all columns but the key are null. `keys`: the keys of the records, if they are in Arrow
    already.
    """
    at = Located(*(np.empty(len(sources), np.int64) for _ in Located._fields))
    locate(payloads, batch, sources, at)
    return located_columns((batch.data, payloads.arena.data), at, only_key, keys)


def located_columns(
    parts: tuple[Array, Array], at: Located, only_key: Array | None = None, keys: pa.ChunkedArray | None = None
) -> dict[str, pa.ChunkedArray]:
    """Copy records whose parts lie in the first buffer (positions >= 0) or the second (`~position`) into columns."""
    value_length = at.value_length
    headers_length = np.where(at.headers_length > 0, at.headers_length, NULL_LENGTH)
    if only_key is not None:
        value_length = np.where(only_key, NULL_LENGTH, value_length)
        headers_length = np.where(only_key, NULL_LENGTH, headers_length)
    return {
        "key": binary_column(*parts, at.key_start, at.key_length) if keys is None else keys,
        "value": binary_column(*parts, at.value_start, value_length),
        "headers": binary_column(*parts, at.headers_start, headers_length),
        "timestamp": pa.chunked_array([pa.array(at.timestamp, mask=only_key)]),
        "offset": pa.chunked_array([pa.array(at.offset, mask=only_key)]),
    }


def binary_column(
    data: Array, arena: Array, starts: Array, lengths: Array, chunk_bytes: int = CHUNK_BYTES
) -> pa.ChunkedArray:
    """Return the byte strings at the given positions as a column; a length of -1 is a null.

    A position >= 0 is in `data`, `~position` is in `arena`.
    """

    def write(rows: slice, content: Array) -> None:
        gather(data, arena, starts[rows], lengths[rows], content)

    return assemble(lengths, write, chunk_bytes)


def in_one(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array. It is copied only if it has several chunks: `combine_chunks` always copies."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def assemble(lengths: Array, write: Callable[[slice, Array], None], chunk_bytes: int = CHUNK_BYTES) -> pa.ChunkedArray:
    """Return a column of byte strings of the given lengths (-1: a null).

    `write(rows, content)` writes the byte strings of these rows into `content`.
    """
    chunks, first = [], 0
    while first < len(lengths):
        chunks.append(_binary_chunk(lengths[first:], first, write, chunk_bytes))
        first += len(chunks[-1])
    return pa.chunked_array(chunks, pa.binary())


def _binary_chunk(lengths: Array, first: int, write: Callable[[slice, Array], None], chunk_bytes: int) -> pa.Array:
    """Return a chunk of the byte strings from row `first` on: as many as fit, at least one.

    `lengths` begins at that row.
    """
    offsets = np.empty(len(lengths) + 1, np.int32)
    count, nulls = lay_out(lengths, chunk_bytes, offsets)
    if nulls == count:  # common for headers: there are no bytes to copy
        return pa.nulls(count, pa.binary())
    content = np.empty(offsets[count], np.uint8)
    write(slice(first, first + count), content)
    validity = pa.py_buffer(np.packbits(lengths[:count] >= 0, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.binary(), count, [validity, pa.py_buffer(offsets), pa.py_buffer(content)], nulls)


@compiled_in_place
def lay_out(lengths: Array, chunk_bytes: int, offsets: Array) -> tuple[Any, Any]:
    """Return how many of the byte strings fit into a chunk, at least one, and how many of these are null.

    Write to `offsets` where each byte string begins and the last one ends.
    """
    end, nulls = 0, 0
    offsets[0] = 0
    for row in range(len(lengths)):
        end += max(0, lengths[row])
        if end > chunk_bytes and row > 0:
            return row, nulls
        offsets[row + 1] = end
        nulls += lengths[row] < 0
    return len(lengths), nulls


@compiled_in_place
def gather(data: Array, arena: Array, starts: Array, lengths: Array, content: Array) -> None:
    """Copy the byte strings into `content`, one after the other."""
    at = 0
    for row in range(len(starts)):
        prefetch(data, starts[min(row + AHEAD, len(starts) - 1)])
        if lengths[row] > 0:
            if starts[row] >= 0:
                copy_bytes(data, starts[row], content, at, lengths[row])
            else:
                copy_bytes(arena, ~starts[row], content, at, lengths[row])
            at += lengths[row]


def keys_of(payloads: Payloads, slots: Array) -> FlatRecords:
    """Return a row per slot, with the key, timestamp and offset of the stored record, and nothing else."""
    starts, lengths = ~(payloads.block[slots].astype(np.int64) * WORD), payloads.key_length[slots].astype(np.int64)
    data, key_start, key_length = binary_parts(binary_column(_NO_BYTES, payloads.arena.data, starts, lengths))
    nothing = np.zeros(len(slots), np.int64)
    return flat_records(
        Records(
            data=data,
            offset=payloads.offset[slots],
            timestamp=payloads.timestamp[slots],
            key_start=key_start,
            key_length=key_length,
            value_start=nothing,
            value_length=nothing + NULL_LENGTH,
            headers_start=nothing,
            headers_length=nothing,
        )
    )


def records_of(rows: pa.RecordBatch | pa.Table) -> Records:
    """Return the rows of a log as records, with the three byte columns in one buffer.

    Null times and offsets become 0.
    """
    parts = [binary_parts(rows.column(name)) for name in ("key", "value", "headers")]
    bases = np.cumsum([0, *(len(content) for content, _, _ in parts)])
    (key_start, key_length), (value_start, value_length), (headers_start, headers_length) = (
        (starts + base, lengths) for (_, starts, lengths), base in zip(parts, bases, strict=False)
    )
    return Records(
        data=np.concatenate([content for content, _, _ in parts]),
        offset=int_column(rows.column("offset")),
        timestamp=int_column(rows.column("timestamp")),
        key_start=key_start,
        key_length=key_length,
        value_start=value_start,
        value_length=value_length,
        headers_start=headers_start,
        headers_length=np.maximum(headers_length, 0),
    )


def int_column(column: pa.Array | pa.ChunkedArray) -> Array:
    """Return the numbers of an int64 column; nulls become 0."""
    known = column.fill_null(0) if column.null_count else column
    return np.asarray(known.to_numpy(zero_copy_only=False), np.int64)


def as_text(values: pa.Array) -> pa.Array:
    """Return byte strings that are known to be UTF-8 as text, without another look at their bytes."""
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), values.null_count, values.offset)


def is_ascii(values: pa.Array) -> bool:
    """Return whether all bytes of the byte strings are below 128; then the byte strings are text in UTF-8."""
    _, offsets, content = values.buffers()
    if len(values) == values.null_count or content is None:
        return True
    bounds = np.frombuffer(offsets, np.int32)
    signed = np.frombuffer(content, np.int8)[bounds[values.offset] : bounds[values.offset + len(values)]]
    return bool(signed.min(initial=0) >= 0)


def binary_parts(column: pa.Array | pa.ChunkedArray) -> tuple[Array, Array, Array]:
    """Return the bytes of a column, and the start and the length (-1: a null) of each value in them."""
    if column.null_count == len(column):  # common for headers: there are no bytes
        return _NO_BYTES, np.zeros(len(column), np.int64), np.full(len(column), NULL_LENGTH)
    array, offset_type = _as_one_array(column)
    _, offsets, content = array.buffers()
    bounds = np.frombuffer(offsets, offset_type)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    starts, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
    if array.null_count:
        lengths[~array.is_valid().to_numpy(zero_copy_only=False)] = NULL_LENGTH
    data = _NO_BYTES if content is None else np.frombuffer(content, np.uint8)
    return data, starts, lengths


def _as_one_array(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Any]:
    """Return the column as one array of byte strings, copied only if it has to be, and the type of its offsets."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        column = column.chunk(0)
    if isinstance(column, pa.Array) and len(column) and column.type in (pa.binary(), pa.string()):
        return column, np.int32
    column = column.cast(pa.large_binary())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, np.int64
