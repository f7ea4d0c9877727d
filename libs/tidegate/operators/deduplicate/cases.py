"""The case of the law suite for deduplication, and what the reference predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.contracts.records import Row
from tidegate.operators.deduplicate.config import DeduplicateConfig
from tidegate.operators.deduplicate.reference import Reference
from tidegate.operators.deduplicate.strategies import deduplicate_configs
from tidegate.operators.testing.cases import Case, columns, late_rows, play, rejected_rows, window_columns
from tidegate.operators.testing.keys_reference import Window
from tidegate.operators.testing.laws import Event, Trace
from tidegate.operators.testing.strategies import windowed_histories


def deduplicate_reference(config: DeduplicateConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts."""
    reference = Reference(config)
    notes = play(reference, history, clock_ms)
    remembered = sorted(reference.remembered, key=lambda first: (first[0].timestamp, first[0].offset))
    return Trace(
        emissions=[columns(row) | {"cause": "first"} | window_columns(window) for row, window in reference.emissions],
        late=late_rows(reference.late, "older than grace", notes),
        rejected=rejected_rows(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=len(reference.emissions),
        superseded=reference.superseded,
        stream_time=reference.stream_time,
        marks=notes.passed.marks,
        held=[_slot(row, window) for row, window in remembered],
        held_bytes=reference.held_bytes,
        stopped_at=reference.stopped_at,
    )


def _slot(row: Row, window: Window) -> dict[str, Any]:
    return {"op": "put"} | columns(row._replace(value=None, headers=b"")) | window_columns(window)


CASES = {
    "deduplicate": Case(
        configs=deduplicate_configs(),
        histories=windowed_histories(),
        reference=deduplicate_reference,
        holding=DeduplicateConfig.model_validate({"input": "records", "within": "5s", "grace": "1h"}),
        bytes_per_record=120,
    ),
}
