"""What the benchmarks ask of a driver that has claimed its operator."""

from __future__ import annotations

from tidegate.runtime.batch_loop.claimed_operator import ClaimedOperator
from tidegate.runtime.batch_loop.driver import NotClaimed, OperatorDriver


def claimed(driver: OperatorDriver) -> ClaimedOperator:
    """Return the operator that the driver has claimed. Raise AssertionError if it has claimed none."""
    if isinstance(driver.claim, NotClaimed):
        raise AssertionError(f"{driver.name} is not claimed")
    return driver.claim.operator


def records_in(driver: OperatorDriver) -> int:
    """Return how many records the operator has read since its log began."""
    return sum(known.totals.records_in for known in claimed(driver).newest.partitions.values())
