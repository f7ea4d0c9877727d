"""Which partitions are worked on together: one request reads them, one thread plays them. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.runtime.task.messages import PartitionPlan

SHARING = 16
"""How many partitions are in a share, and in a transaction, at most: so requests stay small."""

FEW_RECORDS = 2_048
"""How many records a share of several partitions has at most: to hand those over to other threads or processes would
take longer than their kernels take."""


def is_one_share(plans: Sequence[PartitionPlan]) -> bool:
    """Return whether the plans are so few, and their records too, that they are worked on together."""
    return len(plans) <= SHARING and _records(plans) <= FEW_RECORDS


def shares(plans: Sequence[PartitionPlan]) -> list[list[PartitionPlan]]:
    """Return the plans, in order, in as many of such shares as needed; a plan with many records is alone."""
    found = list[list[PartitionPlan]]()
    for plan in plans:
        if found and is_one_share([*found[-1], plan]):
            found[-1].append(plan)
        else:
            found.append([plan])
    return found


def _records(plans: Sequence[PartitionPlan]) -> int:
    return sum(plan.size for plan in plans)
