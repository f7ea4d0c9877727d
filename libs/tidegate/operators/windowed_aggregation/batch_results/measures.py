"""Measures of windows per batch and partition, from which KIP-328's metrics are made.

The names say how measures of several batches combine, as for every operator: of `*_now` the newest counts, of `*_max`
and `*_min` the largest and the smallest, everything else is added up.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.flow import Passage
from tidegate.contracts.operator import Array
from tidegate.contracts.records import Int64s
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, TimeBuffer
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import Unaccepted
from tidegate.operators.options.bounds import sizes
from tidegate.operators.windowed_aggregation import step
from tidegate.operators.windowed_aggregation.bookkeeping import CHECKSUM
from tidegate.operators.windowed_aggregation.config import WindowedAggregationRules
from tidegate.operators.windowed_aggregation.window_times import Rules, due_times


class KernelOutcome(Protocol):
    """What a kernel recorded of a batch: causes of emissions, late and rejected records, and the tallies of `step`."""

    @property
    def cause(self) -> Array:
        """Return the code of the cause of each emission."""
        ...

    @property
    def emitted_after(self) -> Array:
        """Return the row after which each emission left."""
        ...

    @property
    def unaccepted(self) -> Unaccepted:
        """Return the late and the rejected records."""
        ...

    @property
    def tally(self) -> Array:
        """Return the tallies; see `step`."""
        ...


def counts(order: TimeBuffer, outcome: KernelOutcome, elements: int = 0, elements_bytes: int = 0) -> Counts:
    """Return where each record went, and what is held: windows, closed ones included, and `elements` beside them."""
    tally = outcome.tally
    unaccepted, late = (int(number) for number in outcome.unaccepted.numbers[: late_and_rejected.LATENESS_SUM])
    return Counts(
        records_in=late_and_rejected.records_in(outcome.unaccepted, int(tally[step.NEXT_ROW])),
        applied=int(tally[step.APPLIED]),
        late=late,
        rejected=unaccepted - late,
        emitted=int(tally[step.EMITTED_COUNT]),
        held=int(order.numbers[HELD]) + elements,
        held_bytes=int(order.numbers[HELD_BYTES]) + elements_bytes,
    )


def passage(before: int, batch: FlatRecords, outcome: KernelOutcome, ends: Int64s, rules: Rules) -> Passage:
    """Return how the batch moved stream time, which was `before`, and when its results left. `ends`: their windows'."""
    tally = outcome.tally
    times, emitted_after = (before, int(tally[step.STREAM_TIME])), outcome.emitted_after[: tally[step.EMITTED_COUNT]]
    found = late_and_rejected.passage(times, batch, tally[step.NEXT_ROW], outcome.unaccepted, emitted_after)
    due = due_times(ends, rules)
    return found if due is None else found._replace(reached=due - 1)


def measures(
    numbers: Array, outcome: KernelOutcome, config: WindowedAggregationRules, names: tuple[str, ...] = step.CAUSES
) -> dict[str, int]:
    """Return the measures of the batch.

    They are lateness and overtime in ms, emissions by cause, results that were replaced before they were emitted, and
    the size of the open windows in memory and on disk.
    """
    tally = [int(number) for number in outcome.tally]
    causes = np.bincount(outcome.cause[: tally[step.EMITTED_COUNT]], minlength=len(names))
    found = late_and_rejected.measures(outcome.unaccepted, tally[step.NEXT_ROW])
    found |= {f"emitted_{cause}": int(count) for cause, count in zip(names, causes, strict=True)}
    found["suppressed"] = tally[step.SUPPRESSED]
    if tally[step.OVERTIME_COUNT]:
        found |= {"overtime_sum": tally[step.OVERTIME_SUM], "overtime_min": tally[step.OVERTIME_MIN]}
        found["overtime_count"] = tally[step.OVERTIME_COUNT]
    now, now_bytes = (int(number) for number in numbers[:CHECKSUM])
    largest, largest_bytes = tally[step.OPEN_MAX], tally[step.OPEN_BYTES_MAX]
    return found | sizes(config.buffer, now, now_bytes, "now") | sizes(config.buffer, largest, largest_bytes, "max")
