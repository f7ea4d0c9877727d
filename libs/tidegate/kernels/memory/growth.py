"""The capacity that a state gets when it has too little room.

A small capacity doubles, a larger one grows by a fixed step, and the largest by a sixteenth: a big state has little
unused room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tidegate.contracts.errors import EngineError
from tidegate.contracts.operator import Array, Storage
from tidegate.kernels.compiled.words import WORD
from tidegate.kernels.memory import arena
from tidegate.kernels.memory.arena import Arena

MAX_SLOTS = 2**30
MAX_ARENA = WORD * 2**31

SLOTS_STEP, ARENA_STEP = 2**18, 2**24


def more_slots(capacity: Mapping[str, int], slots: str, index: str | None = None) -> dict[str, int]:
    """Return the next capacity: more slots, and an index of a power of two of at least twice as many places.

    Raise EngineError beyond MAX_SLOTS.
    """
    wanted = _larger(capacity[slots], SLOTS_STEP)
    if wanted > MAX_SLOTS:
        raise EngineError(f"a partition has more {slots} than a state can", value=capacity[slots], remedy=_REMEDY)
    if index is None:
        return {slots: wanted}
    places = capacity[index]
    while places < 2 * wanted:
        places *= 2
    return {slots: wanted, index: places}


def arena_capacity(numbers: Array, length: int, capacity: int) -> int | None:
    """Return the bytes that an arena needs to have room for a block of `length` bytes.

    None: a third is dead, so pack the arena instead. Raise EngineError beyond MAX_ARENA.
    """
    words = int(arena.class_words(arena.size_class(length)))
    wanted, wanted_words = WORD * (int(numbers[arena.LIVE]) + words + 1), int(numbers[arena.USED]) + words + 1
    if 3 * wanted <= 2 * capacity:
        return None
    larger = max(_larger(capacity, ARENA_STEP), WORD * wanted_words)
    if larger > MAX_ARENA:
        raise EngineError("a partition has more bytes than a state can", value=larger, remedy=_REMEDY)
    return larger


def make_room(storage: Storage, dimension: str, blocks: Arena, length: int, repack: Callable[[Array], None]) -> None:
    """Make room for a block of `length` bytes in an arena: grow its dimension, or repack it if a third of it is dead.

    `repack` gets scratch memory for all live words. Growth may replace the storage's arrays: map them again.
    """
    larger = arena_capacity(blocks.numbers, length, storage.capacity()[dimension])
    if larger is None:
        repack(np.empty(int(blocks.numbers[arena.LIVE]) + 1, np.int64))
    else:
        storage.grow({dimension: larger})


_REMEDY = "use more partitions"


def _larger(size: int, step: int) -> int:
    return size + max(size // 16 // WORD * WORD, min(size, step))
