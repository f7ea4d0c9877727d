"""Slots, which are row numbers of a state's arrays, allocated and released in O(1).

Released slots form a chain through `link` (any int64 array over slots that a free slot does not need). Slots that were
never used lie above a mark, so memory that was reserved but not needed is never touched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined
from tidegate.kernels.compiled.words import prefetch

USED, FREE = 0, 1
NUMBERS = 2


class SlotPool(NamedTuple):
    """The used and the free slots.

    `numbers`: how many slots were ever used, and the first free slot + 1. `link`: the next free slot + 1.
    """

    numbers: Array
    link: Array


@inlined
def has_slot(pool: SlotPool) -> bool:
    """Return whether `take` can succeed without growth."""
    return bool(pool.numbers[FREE] != 0 or pool.numbers[USED] < len(pool.link))


@inlined
def take(pool: SlotPool) -> Any:
    """Return a slot that is not in use: the one released last, or a new one."""
    slot = pool.numbers[FREE] - 1
    if slot >= 0:
        pool.numbers[FREE] = pool.link[slot]
        prefetch(pool.link, pool.numbers[FREE] - 1)
        return slot
    slot = pool.numbers[USED]
    pool.numbers[USED] += 1
    return slot


@inlined
def give_back(pool: SlotPool, slot: int) -> None:
    """Release the slot, so that it can be taken again."""
    pool.link[slot] = pool.numbers[FREE]
    pool.numbers[FREE] = slot + 1
