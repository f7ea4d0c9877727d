"""Offsets in the log where an input has given offsets to other records. Pure.

A row of the log is known by its record's offset: which of two equal times came first, which element of a window it is,
what was sent back. So after a truncation that a person accepted, records are numbered on from where the log stood: what
is read at an offset that was used before is raised by what the input has lost.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.schema import Raised


def raised_now(raised: Raised) -> int:
    """Return what an offset of the input is raised by that is read from now on."""
    return raised[-1][1] if raised else 0


def after_going_back(raised: Raised, reached: int, end: int) -> Raised:
    """Return how offsets are raised once the input is read from `end` on again, where it had been read to `reached`."""
    first, by = reached + raised_now(raised), raised_now(raised) + reached - end
    return (*(earlier for earlier in raised if earlier[0] < first), (first, by))


def in_the_input(raised: Raised, offsets: Array) -> Array:
    """Return the offsets (int64) in the input of records that the log has at these offsets."""
    if not raised:
        return offsets
    firsts, by = np.array(raised, np.int64).T
    return np.asarray(offsets - np.concatenate([[0], by])[np.searchsorted(firsts, offsets, side="right")])
