"""What is counted of a table, per batch and partition.

How measures of batches combine is told by their names: `*_now` is replaced, `*_max` is the largest, all else adds up.
"""

from __future__ import annotations

from tidegate.contracts.schema import Counts
from tidegate.operators import refusals
from tidegate.operators.table_history import step


def counts(state: step.State, outcome: step.Outcome) -> Counts:
    """Where each record went, and what is held of the table's versions, the newest of each key included."""
    refused, late = (int(number) for number in outcome.refused.numbers[: refusals.LATENESS_SUM])
    return Counts(
        records_in=int(outcome.tally[step.NEXT_ROW]),
        applied=int(outcome.tally[step.APPLIED]),
        superseded=int(outcome.tally[step.SUPERSEDED]),
        late=late,
        rejected=refused - late,
        held=int(state.numbers[step.VERSIONS_HELD]),
        held_bytes=int(state.numbers[step.BYTES_HELD]),
    )


def measures(state: step.State, outcome: step.Outcome) -> dict[str, int]:
    """Lateness in ms, versions that expired, those of them that readers still needed, and the keys that there are."""
    return refusals.measures(outcome.refused, int(outcome.tally[step.NEXT_ROW])) | {
        "expired": int(outcome.tally[step.EXPIRED]),
        "given_up": int(outcome.tally[step.GIVEN_UP]),
        "keys_now": int(state.numbers[step.KEYS_HELD]),
    }
