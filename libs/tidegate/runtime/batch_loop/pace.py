"""The size of a partition's share of a micro-batch: small when caught up, larger when lagging. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.runtime.task.messages import PartitionPlan, PartitionResult

SMALLEST_BYTES, FIRST_BYTES, LARGEST_BYTES = 2**20, 4 * 2**20, 16 * 2**20
"""Bytes of raw record batches per partition; more than the largest gains nothing (`docs/decisions/0007`)."""
TARGET_S = 2.0
"""Target duration of a batch while lagging, so that output keeps coming however many partitions there are."""


def next_piece(piece: int, seconds: float, filled: bool) -> int:
    """Return the bytes that a partition may read in the next batch, after one of `piece` bytes that took `seconds`.

    `filled`: the batch did not read everything. Then the size is scaled towards TARGET_S, by a factor of 0.5 to 2.
    After a batch that read everything the next one is small again, so that new records are processed soon.
    """
    if not filled:
        return FIRST_BYTES
    scale = min(2.0, max(0.5, TARGET_S / max(seconds, 0.001)))
    return min(LARGEST_BYTES, max(SMALLEST_BYTES, int(piece * scale)))


def left_behind(plans: Sequence[PartitionPlan], results: Sequence[PartitionResult]) -> bool:
    """Return whether any partition has read less than was planned."""
    found = {result.partition: result for result in results}
    return any(_left_behind(plan, found[plan.partition]) for plan in plans)


def _left_behind(plan: PartitionPlan, result: PartitionResult) -> bool:
    return result.next_offset < plan.end or any(result.further[at.topic].next_offset < at.end for at in plan.further)
