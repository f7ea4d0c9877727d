"""Counts and measures of the join per batch and partition.

The name of a measure says how batches combine: of `*_now` the newest counts, of `*_max` the largest; all others add up.
An average is `*_sum` over `*_count`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import Counts
from tidegate.operators import late_and_rejected
from tidegate.operators.stream_table_join import step, tables


def counts(outcome: step.Outcome, emitted: int, held: int, held_bytes: int) -> Counts:
    """Return the counts of a batch: a record is rejected or applied, whether it is joined at once or buffered."""
    records = late_and_rejected.records_in(outcome.unaccepted, int(outcome.tally[step.NEXT_ROW]))
    rejected = int(outcome.unaccepted.numbers[late_and_rejected.COUNT])
    return Counts(
        records_in=records,
        applied=records - rejected,
        rejected=rejected,
        emitted=emitted,
        held=held,
        held_bytes=held_bytes,
    )


def measures(
    outcome: step.Outcome, emissions: pa.Table, waiting: tuple[int, int], held: int, held_bytes: int
) -> dict[str, int]:
    """Return lateness in ms, emissions by cause, records that an inner join dropped, and buffer sizes.

    `waiting`: number and bytes of the records whose grace is over, and which wait for the table.
    """
    tally = [int(number) for number in outcome.tally]
    emitted = {row["values"]: row["counts"] for row in pc.value_counts(emissions["cause"]).to_pylist()}
    found = late_and_rejected.measures(outcome.unaccepted, tally[step.NEXT_ROW])
    found |= {f"emitted_{cause}": emitted.get(cause, 0) for cause in tables.CAUSES.to_pylist()}
    dropped, dropped_expired = tally[step.EMITTED] - emissions.num_rows, tally[step.EXPIRED] - found["emitted_expired"]
    return found | {
        "dropped_unmatched": dropped - dropped_expired,
        "dropped_expired": dropped_expired,
        "expired_lookups": tally[step.EXPIRED],
        "waiting_records_now": int(waiting[0]),
        "waiting_bytes_now": int(waiting[1]),
        "buffer_records_now": held,
        "buffer_bytes_now": held_bytes,
        "buffer_records_max": tally[step.HELD_MAX],
        "buffer_bytes_max": tally[step.HELD_BYTES_MAX],
    }
