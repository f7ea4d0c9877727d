"""Builds the output values of joins: both values in one JSON object.

With the names `stream` and `table` the object is `{"stream": ..., "table": ...}`. A value that is JSON stays as it is;
any other is base64 under `stream_bytes` or `table_bytes`; a missing value is null. A first pass classifies the values
and computes the lengths, so the second pass writes everything once, into memory of its final size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.json_text import DEPTH, base64_size, is_json, write_base64
from tidegate.kernels.columns import AHEAD, assemble
from tidegate.kernels.compiled import compiled_in_place, inlined
from tidegate.kernels.compiled.words import copy_bytes, prefetch

_UNKNOWN, _MISSING, _JSON, _BYTES = range(4)
"""The kinds of a value: not yet classified, missing, JSON, or other bytes."""


class Strings(NamedTuple):
    """Byte strings: at `start` of `data` if that is >= 0, otherwise at `~start` of `arena`; length -1: missing."""

    data: Array
    arena: Array
    start: Array
    length: Array


class Names(NamedTuple):
    """What stands before the two values of an object: before one that is JSON or null, and before other bytes."""

    first: Array
    first_bytes: Array
    second: Array
    second_bytes: Array


def _text(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


def names_of(first: str, second: str) -> Names:
    """Return the names of the two values of an object."""
    return Names(*map(_text, (f'{{"{first}":', f'{{"{first}_bytes":"', f',"{second}":', f',"{second}_bytes":"')))


_NULL, _QUOTE, _END = _text("null"), _text('"'), _text("}")


def paired(first: Strings, second: Strings, shared: Array, names: Names) -> pa.ChunkedArray:
    """Return a column of JSON objects, one per pair of values.

    `shared`: per row which of the second values it is, < 0 for none, so that a value of several rows is classified only
    once.
    """
    count = len(first.start)
    kinds = np.empty((2, count), np.int8)
    lengths = np.empty(count, np.int64)
    known = np.zeros(shared.max(initial=0) + 1, np.int8)  # pages that stay unwritten take no memory
    _measure(first, second, shared, known, names, np.empty(DEPTH, np.uint8), kinds, lengths)

    def write(rows: slice, content: Array) -> None:
        _write(first, second, kinds, names, rows.start, rows.stop, content)

    return assemble(lengths, write)


@compiled_in_place
def _measure(
    first: Strings,
    second: Strings,
    shared: Array,
    known: Array,
    names: Names,
    open_at: Array,
    kinds: Array,
    lengths: Array,
) -> None:
    """Fill `kinds` with the kinds of first values (row 0) and second values (row 1), `lengths` with object lengths."""
    for row in range(len(lengths)):
        _prefetch_ahead(first, row)
        _prefetch_ahead(second, row)
        kinds[0, row] = _kind(first, row, open_at)
        kinds[1, row] = _kind_of_shared(second, row, shared[row], known, open_at)
        size = _size(kinds[0, row], first.length[row], len(names.first), len(names.first_bytes))
        size += _size(kinds[1, row], second.length[row], len(names.second), len(names.second_bytes))
        lengths[row] = size + len(_END)


@inlined
def _prefetch_ahead(strings: Strings, row: int) -> None:
    """Prefetch both ends of the value some rows ahead."""
    row = min(row + AHEAD, len(strings.start) - 1)
    start = strings.start[row]
    if start >= 0:
        prefetch(strings.data, start)
        prefetch(strings.data, start + strings.length[row])
    else:
        prefetch(strings.arena, ~start)
        prefetch(strings.arena, ~start + strings.length[row])


@inlined
def _kind(strings: Strings, row: int, open_at: Array) -> Any:
    start = strings.start[row]
    length = strings.length[row]
    if length < 0:
        return _MISSING
    if start >= 0:
        return _JSON if is_json(strings.data, start, length, open_at) else _BYTES
    return _JSON if is_json(strings.arena, ~start, length, open_at) else _BYTES


@inlined
def _kind_of_shared(strings: Strings, row: int, shared: int, known: Array, open_at: Array) -> Any:
    """Return the kind of the value. `known`: per value the kind, _UNKNOWN until it is first classified."""
    if shared < 0:
        return _MISSING
    if known[shared] == _UNKNOWN:
        known[shared] = _kind(strings, row, open_at)
    return known[shared]


@inlined
def _size(kind: int, length: int, name: int, name_of_bytes: int) -> Any:
    if kind == _BYTES:
        return name_of_bytes + base64_size(length) + len(_QUOTE)
    return name + (len(_NULL) if kind == _MISSING else length)


@compiled_in_place
def _write(first: Strings, second: Strings, kinds: Array, names: Names, start: int, stop: int, out: Array) -> None:
    at = 0
    for row in range(start, stop):
        _prefetch_ahead(first, row)
        _prefetch_ahead(second, row)
        at = _write_value(first, row, kinds[0, row], names.first, names.first_bytes, out, at)
        at = _write_value(second, row, kinds[1, row], names.second, names.second_bytes, out, at)
        at = _put(_END, out, at)


@inlined
def _write_value(strings: Strings, row: int, kind: int, name: Array, name_of_bytes: Array, out: Array, at: int) -> Any:
    """Write the member's name and value at `at`; return the position after them."""
    if kind == _BYTES:
        at = _put(name_of_bytes, out, at)
        return _put(_QUOTE, out, _write_bytes(strings, row, out, at))
    at = _put(name, out, at)
    return _put(_NULL, out, at) if kind == _MISSING else _copy(strings, row, out, at)


@inlined
def _write_bytes(strings: Strings, row: int, out: Array, at: int) -> Any:
    start = strings.start[row]
    if start >= 0:
        return write_base64(strings.data, start, strings.length[row], out, at)
    return write_base64(strings.arena, ~start, strings.length[row], out, at)


@inlined
def _copy(strings: Strings, row: int, out: Array, at: int) -> Any:
    start = strings.start[row]
    if start >= 0:
        copy_bytes(strings.data, start, out, at, strings.length[row])
    else:
        copy_bytes(strings.arena, ~start, out, at, strings.length[row])
    return at + strings.length[row]


@inlined
def _put(text: Array, out: Array, at: int) -> Any:
    copy_bytes(text, 0, out, at, len(text))
    return at + len(text)
