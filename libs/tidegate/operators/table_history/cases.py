"""The cases of the law suite for tables, and what the reference predicts."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.table_history.reference import Reference as TableReference
from tidegate.operators.table_history.strategies import table_histories, table_history_configs
from tidegate.operators.testing.cases import Case, columns, late_rows, play, record_bytes, rejected_rows, window_columns
from tidegate.operators.testing.laws import Event, Trace
from tidegate.operators.testing.strategies import windowed_histories


def table_history_reference(config: TableHistoryConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts."""
    reference = TableReference(config)
    notes = play(reference, history, clock_ms)
    versions = sorted(
        ((row, window) for (_, window), chain in reference.versions.items() for row in chain.values()),
        key=lambda version: (version[0].timestamp, version[0].offset),
    )
    return Trace(
        late=late_rows(reference.late, "older than history_retention", notes),
        rejected=rejected_rows(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        superseded=reference.superseded,
        stream_time=reference.stream_time if history else -1,
        held=[{"op": "put"} | columns(row) | window_columns(window) for row, window in versions],
        held_bytes=sum(record_bytes(*version) for version in versions),
        floor=reference.floor if history and config.history_retention is not None else None,
    )


CASES = {
    "table_history": Case(
        configs=table_history_configs(),
        histories=table_histories() | windowed_histories(),
        reference=table_history_reference,
        holding=TableHistoryConfig.model_validate({"input": "records", "history_retention": "1h"}),
        bytes_per_record=160,
    ),
}
