"""Counts and measures of suppression per batch and partition, from which KIP-328's metrics are made.

The name of a measure says how batches combine: of `*_now` the newest counts, of `*_max` and `*_min` the largest and the
smallest, all others add up. An average is `*_sum` over `*_count`: lateness over all records that were not rejected,
overtime over the records that were emitted by time.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.batch_metadata import Counts
from tidegate.operators import late_and_rejected
from tidegate.operators.options.bounds import sizes
from tidegate.operators.suppression import step
from tidegate.operators.suppression.config import SuppressionRules


def counts(outcome: step.Outcome, held: int, held_bytes: int) -> Counts:
    """Return how many records were applied, superseded, late, rejected and emitted, and how many are held."""
    tally = [int(number) for number in outcome.tally]
    unaccepted, late = (int(number) for number in outcome.unaccepted.numbers[: late_and_rejected.LATENESS_SUM])
    return Counts(
        records_in=late_and_rejected.records_in(outcome.unaccepted, tally[step.NEXT_ROW]),
        applied=tally[step.APPLIED],
        superseded=tally[step.SUPERSEDED],
        late=late,
        rejected=unaccepted - late,
        emitted=tally[step.EMITTED],
        held=held,
        held_bytes=held_bytes,
    )


def measures(outcome: step.Outcome, config: SuppressionRules, held: int, held_bytes: int) -> dict[str, int]:
    """Return lateness and overtime in ms, emissions by cause, updates that a later one replaced, and buffer sizes.

    The sizes are those of the memory part and, with `spill`, of the disk part.
    """
    tally = [int(number) for number in outcome.tally]
    causes = np.bincount(outcome.cause[: tally[step.EMITTED]], minlength=len(step.CAUSES))
    found = late_and_rejected.measures(outcome.unaccepted, tally[step.NEXT_ROW])
    found |= {f"emitted_{cause}": int(count) for cause, count in zip(step.CAUSES, causes, strict=True)}
    found["suppressed"] = tally[step.SUPERSEDED]
    if tally[step.OVERTIME_MIN] != step.MAX:
        found |= {"overtime_sum": tally[step.OVERTIME_SUM], "overtime_min": tally[step.OVERTIME_MIN]}
        found["overtime_count"] = tally[step.OVERTIME_COUNT]
    largest, largest_bytes = tally[step.HELD_MAX], tally[step.HELD_BYTES_MAX]
    return found | sizes(config.buffer, held, held_bytes, "now") | sizes(config.buffer, largest, largest_bytes, "max")
