"""Counts and measures of the join per batch and partition.

The name of a measure says how batches combine: of `*_now` the newest counts, of `*_max` the largest; all others add up.
An average is `*_sum` over `*_count`.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.batch_metadata import Counts
from tidegate.operators import late_and_rejected
from tidegate.operators.stream_stream_join import step


def counts(outcome: step.Outcome, held: int, held_bytes: int) -> Counts:
    """Return the counts of a batch: a record is rejected, late or applied, whether it finds a partner or not."""
    numbers = outcome.unaccepted.numbers
    records = late_and_rejected.records_in(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW]))
    unaccepted, late = int(numbers[late_and_rejected.COUNT]), int(numbers[late_and_rejected.LATE_COUNT])
    return Counts(
        records_in=records,
        applied=records - unaccepted,
        late=late,
        rejected=unaccepted - late,
        emitted=int(outcome.tally[step.RESULTS]),
        held=held,
        held_bytes=held_bytes,
    )


def measures(outcome: step.Outcome, held: int, held_bytes: int) -> dict[str, int]:
    """Return lateness in ms, results with and without a partner, and buffer sizes."""
    results = int(outcome.tally[step.RESULTS])
    alone = int(sum(np.count_nonzero(side[:results] == step.NO_RECORD) for side in (outcome.left, outcome.right)))
    return late_and_rejected.measures(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW])) | {
        "emitted_matched": results - alone,
        "emitted_unmatched": alone,
        "buffer_records_now": held,
        "buffer_bytes_now": held_bytes,
        "buffer_records_max": int(outcome.tally[step.HELD_MAX]),
        "buffer_bytes_max": int(outcome.tally[step.HELD_BYTES_MAX]),
    }
