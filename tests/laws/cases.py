"""What the laws need to know of each operator: how to configure it, feed it and foretell it. One entry per kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.suppression.reference import Reference
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.operators.table_history.reference import Reference as TableReference
from tidegate.testing import strategies
from tidegate.testing.laws import Advance, Event, Flush, Trace


@dataclass(frozen=True, kw_only=True)
class Case:
    """`holding`: a configuration that holds every one of `rows_held(n)`, n keys of about 100 bytes."""

    configs: st.SearchStrategy[Any]
    histories: st.SearchStrategy[list[Event]]
    reference: Callable[[Any, Sequence[Event], int], Trace]
    holding: OperatorConfig
    bytes_per_record: int


def suppression_reference(config: SuppressionConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells."""
    reference = Reference(config)
    for event in history:
        if isinstance(event, Advance):
            reference.advance(max(0, reference.stream_time) + event.by_ms)
        elif isinstance(event, Flush):
            reference.flush()
        else:
            reference.process(event, clock_ms)
        if reference.stopped_at is not None:
            break
    return _trace(reference, clock_ms)


def _trace(reference: Reference, clock_ms: int) -> Trace:
    held = sorted(reference.held.values(), key=lambda slot: (slot.place, slot.arrival))
    return Trace(
        emissions=[_columns(row) | {"cause": cause} for row, cause in reference.emissions],
        late=_late(reference.late, "older than max_lateness"),
        rejected=_rejected(reference.rejected, reference.config, clock_ms),
        applied=reference.applied,
        superseded=reference.superseded,
        stream_time=reference.stream_time,
        held=[{"op": "put"} | _columns(slot.row) | {"place": slot.place, "arrival": slot.arrival} for slot in held],
        held_bytes=reference.held_bytes,
        stopped_at=reference.stopped_at,
    )


def table_history_reference(config: TableHistoryConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells."""
    reference = TableReference(config)
    for event in history:
        if isinstance(event, Advance):
            reference.advance(max(0, reference.stream_time) + event.by_ms)
        elif isinstance(event, Row):
            reference.process(event, clock_ms)
    versions = sorted(
        (row for chain in reference.versions.values() for row in chain.values()),
        key=lambda row: (row.timestamp, row.offset),
    )
    return Trace(
        late=_late(reference.late, "older than history_retention"),
        rejected=_rejected(reference.rejected, config, clock_ms),
        applied=reference.applied,
        superseded=reference.superseded,
        stream_time=reference.stream_time if history else -1,
        held=[{"op": "put"} | _columns(row) for row in versions],
        held_bytes=sum(len(row.key or b"") + len(row.value or b"") + len(row.headers) for row in versions),
    )


def _late(late: Sequence[tuple[Row, int, int]], cause: str) -> list[dict[str, Any]]:
    return [_columns(row) | {"cause": cause, "lateness": lateness, "bound": bound} for row, lateness, bound in late]


def _rejected(rejected: Sequence[tuple[Row, str]], config: OperatorConfig, clock_ms: int) -> list[dict[str, Any]]:
    bounds = {"too far ahead": clock_ms + (config.max_ahead or 0)}
    return [_columns(row) | {"cause": cause, "lateness": None, "bound": bounds.get(cause)} for row, cause in rejected]


def _columns(row: Row) -> dict[str, Any]:
    return {
        "key": row.key,
        "value": row.value,
        "headers": row.headers or None,
        "timestamp": None if row.timestamp == NO_TIMESTAMP else row.timestamp,
        "offset": row.offset,
    }


CASES = {
    "suppression": Case(
        configs=strategies.suppression_configs(),
        histories=strategies.histories(),
        reference=suppression_reference,
        holding=SuppressionConfig.model_validate({"input": "records", "until": {"time_limit": "1h"}}),
        bytes_per_record=120,
    ),
    "table_history": Case(
        configs=strategies.table_history_configs(),
        histories=strategies.histories(),
        reference=table_history_reference,
        holding=TableHistoryConfig.model_validate({"input": "records", "history_retention": "1h"}),
        bytes_per_record=160,
    ),
}
