"""A histogram of how late records were: exact up to 4 ms, then four bins per doubling.

A bin is named by its upper bound: it counts the records that were at most that late, and later than the bound before.
So the records that a given grace would have accepted can be counted, with the grace rounded by at most a quarter, from
a few numbers per micro-batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

EXACT = 4
"""Up to this many ms, each lateness has its own bin. Each doubling after that has this many bins."""

BINS = 250
"""Enough bins for any int64."""

_LEADING_BITS = 50
"""A float64 shifted right by this leaves its exponent and two bits, which name the quarter of the doubling."""

_FIRST = 4 * 1023 + 3


PREFIX = "lateness_upto_"
"""Prefix of the measure that counts the records of a bin; the bin's bound follows."""


@inlined
def count(bins: Array, lateness: int) -> None:
    """Count a record that was that many ms late; a record that was not late counts as 0.

    Any number leads to one of the BINS: a lateness is a difference of times that come from records.
    """
    bins[bin_of(max(wide(lateness), 0))] += 1


@inlined
def bin_of(lateness: int) -> Any:
    """Return the bin of a lateness >= 0."""
    if lateness <= EXACT:
        return np.int64(lateness)
    return (np.float64(lateness - 1).view(np.int64) >> _LEADING_BITS) - _FIRST


def bound_of(number: int) -> int:
    """Return the largest lateness that the bin counts, ms."""
    if number <= EXACT:
        return number
    doubling, quarter = divmod(number - 1, EXACT)
    return min((quarter + EXACT + 1) << (doubling - 1), MAX_TIMESTAMP)


def measures(bins: Array) -> dict[str, int]:
    """Return the counts of the bins that are not empty, each under PREFIX and its bound."""
    return {_NAMES[number]: int(bins[number]) for number in np.flatnonzero(bins)}


_NAMES = [f"{PREFIX}{bound_of(number)}" for number in range(BINS)]
