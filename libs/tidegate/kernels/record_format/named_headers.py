"""Finds the headers of certain names among those of many records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.record_format.header_block import next_header
from tidegate.kernels.record_format.varint import read_varint


class Names(NamedTuple):
    """Names of headers as arrays: their bytes one behind the other, and where each one ends."""

    text: Array
    end: Array


def names_of(names: Sequence[str]) -> Names:
    """Return the names as arrays."""
    encoded = [name.encode() for name in names]
    return Names(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(name) for name in encoded]))


def find_headers(data: Array, start: Array, length: Array, names: Names) -> tuple[Array, Array]:
    """Return where the value of each header begins, and its length (-1: null, or no such header), [name, row].

    `data[start : start + length]` is a record's block of headers. Of several with the same name the last one counts; in
    a damaged block those behind the damage are missing.
    """
    found_start = np.zeros((len(names.end), len(start)), np.int64)
    found_length = np.full((len(names.end), len(start)), -1)
    _find(data, start, length, names, found_start, found_length)
    return found_start, found_length


@compiled_in_place
def _find(data: Array, starts: Array, lengths: Array, names: Names, found_start: Array, found_length: Array) -> None:
    for row in range(len(starts)):
        if lengths[row] <= 0:
            continue
        end = wide(starts[row]) + wide(lengths[row])
        count, at = read_varint(data, wide(starts[row]), end)
        while count > 0 and at >= 0:
            name, size, value, length, at = next_header(data, at, end)
            which = _place_of(data, name, size, names) if at >= 0 else -1
            if which >= 0:
                found_start[which, row], found_length[which, row] = value, length
            count -= 1


@inlined
def _place_of(data: Array, at: int, size: int, names: Names) -> int:
    """Return which of the names the bytes are; -1: none of them."""
    begin = wide(0)
    for which in range(len(names.end)):
        if names.end[which] - begin == size:
            place = wide(0)
            while place < size and data[at + place] == names.text[begin + place]:
                place += 1
            if place == size:
                return which
        begin = wide(names.end[which])
    return -1
