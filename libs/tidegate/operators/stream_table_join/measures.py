"""What the join says of itself, per batch and partition.

How measures of batches combine is told by their names: `*_now` is replaced, `*_max` is the largest, everything else
adds up. An average is `*_sum` over `*_count`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.schema import Counts
from tidegate.operators import refusals
from tidegate.operators.stream_table_join import step, tables


def counts(outcome: step.Outcome, emitted: int, held: int, held_bytes: int) -> Counts:
    """Where each record went: one that is not rejected is applied, whether it was joined at once or buffered."""
    records, rejected = int(outcome.tally[step.NEXT_ROW]), int(outcome.refused.numbers[refusals.COUNT])
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
    """Lateness in ms, emissions by cause, what an inner join dropped, sizes of the buffer and what is overdue."""
    tally = [int(number) for number in outcome.tally]
    emitted = {row["values"]: row["counts"] for row in pc.value_counts(emissions["cause"]).to_pylist()}
    found = refusals.measures(outcome.refused, tally[step.NEXT_ROW])
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
