"""How much a partition takes into one micro-batch: little when caught up, much when behind. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.runtime.messages import PartitionPlan, PartitionResult

SMALLEST_BYTES, FIRST_BYTES, LARGEST_BYTES = 2**20, 4 * 2**20, 16 * 2**20
"""Raw record batches of one partition: larger pieces than the largest gain nothing (`docs/decisions/0007`)."""
TARGET_S = 2.0
"""A batch of a service that is behind takes about this long: output keeps coming however many partitions there are."""


def next_piece(piece: int, seconds: float, filled: bool) -> int:
    """The bytes that a partition may take into the next batch, after one of `piece` bytes that took `seconds`.

    `filled`: the batch left something behind. Then the next is up to twice as large, or as much smaller as it was too
    long; one that took everything is followed by a small one again, so that what has come meanwhile is out soon.
    """
    if not filled:
        return FIRST_BYTES
    scale = min(2.0, max(0.5, TARGET_S / max(seconds, 0.001)))
    return min(LARGEST_BYTES, max(SMALLEST_BYTES, int(piece * scale)))


def left_behind(plans: Sequence[PartitionPlan], results: Sequence[PartitionResult]) -> bool:
    """True when a partition has not read all that was planned."""
    reached = {result.partition: result.next_offset for result in results}
    return any(reached[plan.partition] < plan.end for plan in plans)
