"""Counts and measures of a table per batch and partition.

The name of a measure says how batches combine: of `*_now` the newest counts, of `*_max` the largest; all others add up.
"""

from __future__ import annotations

from tidegate.contracts.batch_metadata import Counts
from tidegate.operators import late_and_rejected
from tidegate.operators.table_history import step


def counts(state: step.State, outcome: step.Outcome) -> Counts:
    """Return how many records were applied, superseded, late and rejected, and how many versions are held.

    The versions held include the newest of each key.
    """
    unaccepted, late = (int(number) for number in outcome.unaccepted.numbers[: late_and_rejected.LATENESS_SUM])
    return Counts(
        records_in=late_and_rejected.records_in(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW])),
        applied=int(outcome.tally[step.APPLIED]),
        superseded=int(outcome.tally[step.SUPERSEDED]),
        late=late,
        rejected=unaccepted - late,
        held=int(state.numbers[step.VERSIONS_HELD]),
        held_bytes=int(state.numbers[step.BYTES_HELD]),
    )


def measures(state: step.State, outcome: step.Outcome) -> dict[str, int]:
    """Return lateness in ms, and the numbers of expired versions, of those that readers still needed, and of keys."""
    return late_and_rejected.measures(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW])) | {
        "expired": int(outcome.tally[step.EXPIRED]),
        "given_up": int(outcome.tally[step.GIVEN_UP]),
        "keys_now": int(state.numbers[step.KEYS_HELD]),
    }
