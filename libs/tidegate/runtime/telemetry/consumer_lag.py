"""Computes the consumer lag of an operator in a partition of its input."""

from __future__ import annotations


def consumer_lag(stable_offset: int, next_offset: int) -> int:
    """Return how many offsets below the last stable offset the operator has not read yet.

    It is 0 if the partition now ends before the operator's next offset, for instance because its records were lost.
    """
    return max(0, stable_offset - next_offset)
