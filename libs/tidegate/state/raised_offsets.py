"""Translate between offsets of the input and offsets in the log. Pure functions.

The two differ after the input was truncated and a person accepted the loss: the input then reuses offsets for other
records. The log identifies rows by the offset of their record: it decides which of two records with equal times came
first, which element of a window a row is, and which rows `tidegate redrive` has sent. So the log continues its own
numbering: the offset of a record that is read at a reused offset is raised by the number of offsets that were lost.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.batch_metadata import Raised
from tidegate.contracts.operator import Array


def raised_now(raised: Raised) -> int:
    """Return by how much the offset of a record that is read from now on is raised in the log."""
    return raised[-1][1] if raised else 0


def after_going_back(raised: Raised, reached: int, end: int) -> Raised:
    """Return `raised` after a skip back: the input was read up to `reached` and is now read again from `end` on.

    `reached` and `end` are offsets of the input, `end` before `reached`.
    """
    # rule: raised-offsets/sum
    first, by = reached + raised_now(raised), raised_now(raised) + reached - end
    return (*(earlier for earlier in raised if earlier[0] < first), (first, by))


def input_offsets(raised: Raised, offsets: Array) -> Array:
    """Return the input offsets (int64) of the records that have these offsets in the log."""
    if not raised:
        return offsets
    firsts, by = np.array(raised, np.int64).T
    return np.asarray(offsets - np.concatenate([[0], by])[np.searchsorted(firsts, offsets, side="right")])
