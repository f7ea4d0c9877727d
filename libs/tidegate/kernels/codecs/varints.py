"""The variable-length numbers and the four bytes of a float that values of Avro and of Protobuf have."""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

FAILED = -1
"""The position behind a number that is not there."""


@inlined
def read_varint(data: Array, at: int, end: int) -> Any:
    """Return the 64 bits of the number at that position, and the position behind it, FAILED if there is none."""
    if at < end and data[at] < 128:  # most numbers are lengths and counts: one byte
        return wide(data[at]), at + 1
    value, shift = wide(0), wide(0)
    while at < end:
        byte = wide(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if shift == 63 and byte > 1:
                return value, wide(FAILED)
            return value, at
        shift += 7
        if shift > 63:
            return value, wide(FAILED)
    return value, wide(FAILED)


@inlined
def zigzag(bits: int) -> Any:
    """Return the signed number whose zigzag form these bits are."""
    return ((bits >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(bits & 1)


@inlined
def four_bytes(data: Array, at: int) -> Any:
    """Return the four bytes from `at` on as a little-endian int32. They must be there."""
    bits = wide(0)
    for each in range(4):
        bits |= wide(data[at + each]) << (8 * each)
    return bits - (1 << 32) if bits >= 1 << 31 else bits
