"""Merges the rows of several streams within a batch.

The rows of a stream keep their own order, which may not be that of their timestamps. Of two streams that one goes on
whose time has come less far, as if both were read side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.contracts.records import Int64s

STREAM = "stream"
"""The column with the number of the stream that a row is of."""


def merge_order(stream: npt.NDArray[Any], timestamp: Int64s) -> Int64s:
    """Return the order in which the rows are processed, as their indexes.

    A row's place is the largest timestamp of its stream up to it; at one place streams come in the order of their
    numbers. Whatever the order of streams among the rows, the result is the same.
    """
    reached = np.empty_like(timestamp)
    for each in np.unique(stream):
        reached[stream == each] = np.maximum.accumulate(timestamp[stream == each])
    return np.lexsort((stream, reached))
