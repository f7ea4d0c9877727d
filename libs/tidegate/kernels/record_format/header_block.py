"""A record's block of headers: a varint count; then per header its name and its value, each behind a varint length.

The length of a null is -1. Whoever reads a block steps from header to header with `next_header`.
"""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined
from tidegate.kernels.record_format.varint import read_varint


@inlined
def end_of(start: int, length: int, end: int) -> Any:
    """Return the position after bytes that may be null (length -1); -1 if they do not end before `end`."""
    if start < 0 or length < -1 or length > end - start:
        return -1
    return start + max(length, 0)


@inlined
def next_header(data: Array, at: int, end: int) -> Any:
    """Return where the name of the header at `at` begins and its length, the same of its value, and what is behind it.

    That position is -1 if the block, which ends at `end`, is damaged there.
    """
    size, name = read_varint(data, at, end)
    length, value = read_varint(data, end_of(name, size, end) if size >= 0 else -1, end)
    return name, size, value, length, end_of(value, length, end)
