"""What KIP-328's metrics of windows are made of, per batch and partition.

How measures of batches combine is told by their names, as for every operator: `*_now` is replaced, `*_max` and `*_min`
are the largest and the smallest, everything else adds up.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.schema import Counts
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, TimeBuffer
from tidegate.operators import refusals
from tidegate.operators.bounds import sizes
from tidegate.operators.refusals import Refused
from tidegate.operators.windowed_aggregation import step
from tidegate.operators.windowed_aggregation.config import WindowRules


class Batch(Protocol):
    """What a kernel noted of a batch: the causes of the emissions, what was refused, and the tallies of `step`."""

    @property
    def cause(self) -> Array:
        """A code per emission."""
        ...

    @property
    def refused(self) -> Refused:
        """The refused records."""
        ...

    @property
    def tally(self) -> Array:
        """See `step`."""
        ...


def counts(order: TimeBuffer, outcome: Batch, elements: int = 0, elements_bytes: int = 0) -> Counts:
    """Where each record went, and the windows held, closed ones included, with so many elements beside them."""
    tally = outcome.tally
    refused, late = (int(number) for number in outcome.refused.numbers[: refusals.LATENESS_SUM])
    return Counts(
        records_in=int(tally[step.NEXT_ROW]),
        applied=int(tally[step.APPLIED]),
        late=late,
        rejected=refused - late,
        emitted=int(tally[step.EMITTED]),
        held=int(order.numbers[HELD]) + elements,
        held_bytes=int(order.numbers[HELD_BYTES]) + elements_bytes,
    )


def measures(
    numbers: Array, outcome: Batch, config: WindowRules, names: tuple[str, ...] = step.CAUSES
) -> dict[str, int]:
    """Lateness and overtime in ms, emissions by cause, results that others replaced before they were told, and the size
    of the open windows in memory and on disk."""
    tally = [int(number) for number in outcome.tally]
    causes = np.bincount(outcome.cause[: tally[step.EMITTED]], minlength=len(names))
    found = refusals.measures(outcome.refused, tally[step.NEXT_ROW])
    found |= {f"emitted_{cause}": int(count) for cause, count in zip(names, causes, strict=True)}
    found["suppressed"] = tally[step.SUPPRESSED]
    if tally[step.OVERTIME_COUNT]:
        found |= {"overtime_sum": tally[step.OVERTIME_SUM], "overtime_min": tally[step.OVERTIME_MIN]}
        found["overtime_count"] = tally[step.OVERTIME_COUNT]
    now, now_bytes = (int(number) for number in numbers[: step.CHECK])
    largest, largest_bytes = tally[step.OPEN_MAX], tally[step.OPEN_BYTES_MAX]
    return found | sizes(config.buffer, now, now_bytes, "now") | sizes(config.buffer, largest, largest_bytes, "max")
