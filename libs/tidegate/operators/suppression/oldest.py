"""The earliest timestamp of what a suppression holds, without a look at all of it in each batch.

The order of eviction does not say which record is the oldest: an update may be older than the record that it replaces.
So the state keeps a lower bound, LOW. What a batch holds lowers it at once. What leaves does not raise it: that takes a
look at everything else that is held, which is spread over batches. A *round* looks at all slots in turn, a few for each
one that has changed, and keeps in NEXT the earliest timestamp of those before HAND. When it has seen all, NEXT is the
new bound, and the next round begins.
"""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.payloads import Payloads
from tidegate.kernels.time_buffer import NOT_HELD, TimeBuffer

LOW, NEXT, HAND, CHANGED, CHECK = range(5)
NUMBERS = 5
"""Indexes of the numbers: see above; CHANGED counts slots since the last look, CHECK is a checksum of the others."""

PACE, LEAST = 8, 1024
"""How many slots are looked at for each one that has changed, and how many at least."""

NONE = 2**63 - 1
"""The bound where nothing is held."""


def begin(numbers: Array) -> None:
    """Initialize the numbers of a state that holds nothing."""
    numbers[[LOW, NEXT]] = NONE
    seal(numbers)


@inlined
def note(numbers: Array, timestamp: int) -> None:
    """Count a slot that has changed, and lower the bounds to the timestamp of what it holds now; NONE: nothing."""
    numbers[LOW] = min(numbers[LOW], timestamp)
    numbers[NEXT] = min(numbers[NEXT], timestamp)
    numbers[CHANGED] += 1


@inlined
def seal(numbers: Array) -> None:
    """Write the checksum; to be called after each change."""
    numbers[CHECK] = checksum(numbers)


@inlined
def checksum(numbers: Array) -> Any:
    """Return a checksum of the numbers."""
    found = wide(0)
    for at in range(CHECK):
        found = hash_index.mix(found ^ numbers[at])
    return found


def look(numbers: Array, time: TimeBuffer, payloads: Payloads, used: int) -> int:
    """Look at the next slots of the round; return the bound. Call this between batches."""
    first, end = int(numbers[HAND]), min(used, int(numbers[HAND] + PACE * numbers[CHANGED] + LEAST))
    holds = (time.position[first:end] != NOT_HELD) & (time.arrival[first:end] >= 0)  # others are closed windows
    # rule: lease-bound-covers-held
    numbers[NEXT] = payloads.timestamp[first:end][holds].min(initial=numbers[NEXT])
    numbers[[HAND, CHANGED]] = end, 0
    if end == used:
        numbers[[LOW, NEXT, HAND]] = numbers[NEXT], NONE, 0
    seal(numbers)
    return int(numbers[LOW])
