"""Kafka's numbers: zigzag varints and big-endian integers in byte arrays.

`read_varint` returns the value and the position after it. The position is -1 if the bytes run out before `end`. Reading
at -1 gives -1 again, so a caller checks once after several reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.records import Bytes
from tidegate.kernels.compiled import compiled, inlined

_LONGEST = 10
_NO_SIGN = 2**63 - 1
_LOW_57 = 2**57 - 1


@inlined
def read_varint(data: Bytes, at: int, end: int) -> Any:
    """Return the zigzag varint at `at` and the position after it; (0, -1) if it does not end before `end`."""
    value = np.int64(0)
    if at < 0:
        return 0, -1
    for place in range(_LONGEST):
        if at >= end:
            break
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return int(((value >> 1) & _NO_SIGN) ^ -(value & 1)), at
    return 0, -1


@inlined
def varint_size(value: int) -> int:
    """Return how many bytes the zigzag varint of the value takes."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest < 0 or rest >= 128:
        rest = (rest >> 7) & _LOW_57
        size += 1
    return size


@inlined
def write_varint(out: Bytes, at: int, value: int) -> int:
    """Write the zigzag varint of the value at `at`, and return the position after it."""
    rest = (value << 1) ^ (value >> 63)
    while rest < 0 or rest >= 128:
        out[at] = (rest & 127) | 128
        rest = (rest >> 7) & _LOW_57
        at += 1
    out[at] = rest
    return at + 1


@compiled
def read_big_endian(data: Bytes, at: int, width: int) -> int:
    """Return the signed integer of `width` bytes at `at`. The bytes must be there."""
    value = np.int64(0)
    for place in range(width):
        value = (value << 8) | np.int64(data[at + place])
    if width < 8 and data[at] > 127:
        value -= np.int64(1) << (8 * width)
    return int(value)
