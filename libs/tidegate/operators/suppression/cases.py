"""The cases of the law suite for suppression, and what the reference predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.operators.suppression.config import SuppressionConfig
from tidegate.operators.suppression.reference import Reference, Slot
from tidegate.operators.suppression.strategies import suppression_configs
from tidegate.operators.testing.cases import Case, Notes, columns, late_rows, play, rejected_rows, window_columns
from tidegate.operators.testing.laws import Event, Trace
from tidegate.operators.testing.strategies import windowed_histories


def suppression_reference(config: SuppressionConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts."""
    reference = Reference(config)
    return _trace(reference, play(reference, history, clock_ms))


def _trace(reference: Reference, notes: Notes) -> Trace:
    held = sorted(reference.held.values(), key=lambda slot: (slot.place, slot.arrival))
    return Trace(
        emissions=[
            columns(slot.row) | {"cause": cause} | window_columns(slot.window) for slot, cause in reference.emissions
        ],
        late=late_rows(
            reference.late, "its window is closed" if reference.closes else "older than max_lateness", notes
        ),
        rejected=rejected_rows(reference.rejected, reference.config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        superseded=reference.superseded,
        stream_time=reference.stream_time,
        marks=notes.passed.marks,
        held=[_slot(slot) for slot in held],
        held_bytes=reference.held_bytes,
        stopped_at=reference.stopped_at,
    )


def _slot(slot: Slot) -> dict[str, Any]:
    return (
        {"op": "put"} | columns(slot.row) | {"place": slot.place, "arrival": slot.arrival} | window_columns(slot.window)
    )


CASES = {
    "suppression": Case(
        configs=suppression_configs(),
        histories=windowed_histories(),
        reference=suppression_reference,
        holding=SuppressionConfig.model_validate({"input": "records", "until": {"time_limit": "1h"}}),
        bytes_per_record=120,
    ),
}
