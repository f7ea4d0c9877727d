"""Numbers for the rows of a state's arrays, taken and given back in O(1).

Slots given back form a chain through `link` (any int64 array over slots that a free slot does not need); slots never
used lie behind a mark, so that memory which was reserved but not needed is never touched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined
from tidegate.kernels.compiled.words import prefetch

USED, FREE = 0, 1
NUMBERS = 2


class SlotPool(NamedTuple):
    """`numbers`: how many slots were ever used, and the first free one + 1. `link`: the next free one + 1."""

    numbers: Array
    link: Array


@inlined
def has_slot(pool: SlotPool) -> bool:
    """True when `take` can succeed without growth."""
    return bool(pool.numbers[FREE] != 0 or pool.numbers[USED] < len(pool.link))


@inlined
def take(pool: SlotPool) -> Any:
    """A slot that nobody else has: the one given back last, or a new one."""
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
    """The slot may be taken again."""
    pool.link[slot] = pool.numbers[FREE]
    pool.numbers[FREE] = slot + 1
