"""How late records were, counted in bins: exact up to 4 ms, then four to each doubling.

A bin is named by its bound: it counts the records that were at most that late, and later than the bound before. So the
records that a grace would have served are counted to a quarter of the grace, in a few numbers for each batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

EXACT = 4
"""Up to this many ms each lateness has a bin of its own; so many bins has each doubling after it."""

BINS = 250
"""All that an int64 can need."""

_LEADING_BITS = 50
"""A float64 shifted by so many bits is its exponent, then two bits that say which quarter of a doubling it is in."""

_FIRST = 4 * 1023 + 3


PREFIX = "lateness_upto_"
"""A batch's measure of that name, with a bin's bound behind it, says how many records are in the bin."""


@inlined
def count(bins: Array, lateness: int) -> None:
    """Count a record that was that late, ms; one that was not late counts as 0.

    Whatever number comes in, the bin is one of BINS: a lateness is a difference of times that records bring along.
    """
    bins[bin_of(max(wide(lateness), 0))] += 1


@inlined
def bin_of(lateness: int) -> Any:
    """The bin of a lateness >= 0."""
    if lateness <= EXACT:
        return np.int64(lateness)
    return (np.float64(lateness - 1).view(np.int64) >> _LEADING_BITS) - _FIRST


def bound_of(number: int) -> int:
    """The largest lateness that the bin counts, ms."""
    if number <= EXACT:
        return number
    doubling, quarter = divmod(number - 1, EXACT)
    return min((quarter + EXACT + 1) << (doubling - 1), MAX_TIMESTAMP)


def measures(bins: Array) -> dict[str, int]:
    """The bins that are not empty, by their bounds."""
    return {f"{PREFIX}{bound_of(int(number))}": int(bins[number]) for number in np.flatnonzero(bins)}
