"""Counts and measures of deduplication per batch and partition.

The name of a measure says how batches combine: of `*_now` the newest counts, of `*_max` the largest; all others add up.
"""

from __future__ import annotations

from tidegate.contracts.batch_metadata import Counts
from tidegate.operators import late_and_rejected
from tidegate.operators.deduplicate import step
from tidegate.operators.deduplicate.config import DeduplicateRules
from tidegate.operators.options.bounds import sizes


def counts(outcome: step.Outcome, held: int, held_bytes: int) -> Counts:
    """Return how many records were first (applied and emitted), duplicates (superseded), late and rejected.

    `held`: how many first records are remembered, and the bytes of their keys.
    """
    unaccepted, late = (int(number) for number in outcome.unaccepted.numbers[: late_and_rejected.LATENESS_SUM])
    first = int(outcome.tally[step.EMITTED])
    return Counts(
        records_in=late_and_rejected.records_in(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW])),
        applied=first,
        superseded=int(outcome.tally[step.SUPERSEDED]),
        late=late,
        rejected=unaccepted - late,
        emitted=first,
        held=held,
        held_bytes=held_bytes,
    )


def measures(outcome: step.Outcome, config: DeduplicateRules, held: int, held_bytes: int) -> dict[str, int]:
    """Return lateness in ms, how many first records expired, and how much is remembered, now and at most."""
    largest, largest_bytes = (int(outcome.tally[name]) for name in (step.HELD_MAX, step.HELD_BYTES_MAX))
    return (
        late_and_rejected.measures(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW]))
        | {"expired": int(outcome.tally[step.EXPIRED])}
        | sizes(config.buffer, held, held_bytes, "now")
        | sizes(config.buffer, largest, largest_bytes, "max")
    )
