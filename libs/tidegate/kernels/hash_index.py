"""An open-addressing hash index over slots. May import: numpy, contracts, kernels.

The index holds `slot + 1` at a place reached from the hash by linear probing; 0 is an empty place, so that a new
array is an empty index. Its length is a power of two of at least twice the slots. Removal shifts later entries back,
so there are no tombstones and no clean-up. The index knows hashes only: an equal hash is a candidate, and the caller
compares the bytes of the keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_MASK_32 = 0xFFFFFFFF
_MASK_31 = 0x7FFFFFFF


@inlined
def hash_bytes(data: Array, start: int, length: int) -> Any:
    """FNV-1a of the bytes, folded to 31 bits so that it is stored as int32; all steps fit in int64."""
    mixed = np.int64(_FNV_OFFSET)
    for at in range(start, start + length):
        mixed = ((mixed ^ np.int64(data[at])) * _FNV_PRIME) & _MASK_32
    return (mixed ^ (mixed >> 15)) & _MASK_31


@inlined
def same_bytes(left: Array, left_start: int, right: Array, right_start: int, length: int) -> bool:
    """True when both buffers hold the same bytes there."""
    for at in range(length):
        if left[left_start + at] != right[right_start + at]:
            return False
    return True


@inlined
def home(index: Array, hashed: int) -> Any:
    """The place where the probing for a hash begins."""
    return hashed & (len(index) - 1)


@inlined
def next_place(index: Array, place: int) -> Any:
    """The place after this one, round the end."""
    return (place + 1) & (len(index) - 1)


@inlined
def candidate(index: Array, hashes: Array, hashed: int, place: int) -> Any:
    """The first place from `place` on that is empty or holds a slot with that hash."""
    while index[place] != 0 and hashes[index[place] - 1] != hashed:
        place = next_place(index, place)
    return place


@inlined
def insert(index: Array, hashes: Array, slot: int) -> None:
    """The index holds the slot, whose hash is already in `hashes`."""
    place = home(index, wide(hashes[slot]))
    while index[place] != 0:
        place = next_place(index, place)
    index[place] = slot + 1


@inlined
def remove(index: Array, hashes: Array, slot: int) -> None:
    """The index does not hold the slot; no probe is interrupted: entries behind it moved up where they may."""
    hole = home(index, wide(hashes[slot]))
    while index[hole] != slot + 1:
        hole = next_place(index, hole)
    place = next_place(index, hole)
    while index[place] != 0:
        wanted = home(index, wide(hashes[index[place] - 1]))
        if ((place - wanted) & (len(index) - 1)) >= ((place - hole) & (len(index) - 1)):
            index[hole] = index[place]
            hole = place
        place = next_place(index, place)
    index[hole] = 0
