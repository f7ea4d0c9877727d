"""The cases of the law suite for joins, and what the reference predicts."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from tidegate.contracts.event_time import NEVER
from tidegate.contracts.records import Row
from tidegate.operators.stream_table_join.config import StreamTableJoinConfig
from tidegate.operators.stream_table_join.reference import Reference as JoinReference
from tidegate.operators.stream_table_join.strategies import join_histories, stream_table_join_configs
from tidegate.operators.table_history.config import TableHistoryRules
from tidegate.operators.table_history.reference import Reference as TableReference
from tidegate.operators.testing.cases import Case, columns, play, record_bytes, rejected_rows, window_columns
from tidegate.operators.testing.keys_reference import Window
from tidegate.operators.testing.laws import Event, Table, Trace


def stream_table_join_reference(config: StreamTableJoinConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts. A table comes before any record."""
    first = next(event for event in history if isinstance(event, Table))
    reference = JoinReference(config, _table(first, clock_ms), open_until=first.open_until)
    notes = play(reference, history, clock_ms, _table)
    return Trace(
        emissions=[_joined(config, *emission) for emission in reference.emissions],
        rejected=rejected_rows(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        marks=notes.passed.marks,
        held=[
            {"op": "put"} | columns(held.row) | {"arrived": held.arrived} | window_columns(held.window)
            for held in reference.held
        ],
        held_bytes=sum(record_bytes(held.row, held.window) for held in reference.held),
    )


def _table(table: Table, clock_ms: int) -> TableReference:
    assert isinstance(table.config, TableHistoryRules)
    reference = TableReference(table.config)
    if table.floor is not None:
        reference.hold(NEVER)
    for row in table.rows:
        reference.process(row, clock_ms)
    reference.gone = reference.gone if table.floor is None else table.floor
    return reference


def _joined(config: StreamTableJoinConfig, row: Row, window: Window, version: Row | None, cause: str) -> dict[str, Any]:
    stream, table = row.value or b"", version and version.value
    value = b"-".join([stream, b"null" if table is None else table])
    if config.joiner is None:
        value = b"{%s,%s}" % (_named(b"stream", stream), _named(b"table", table))
    found = {"value": value, "cause": cause, "valid_from": version and version.timestamp}
    return columns(row) | found | window_columns(window)


def _named(name: bytes, value: bytes | None) -> bytes:
    try:
        json.loads((b"null" if value is None else value).decode())
    except ValueError:
        return b'"%s_bytes":"%s"' % (name, base64.b64encode(value or b""))
    return b'"%s":%s' % (name, b"null" if value is None else value)


CASES = {
    "stream_table_join": Case(
        configs=stream_table_join_configs(),
        histories=join_histories(),
        reference=stream_table_join_reference,
        holding=StreamTableJoinConfig.model_validate({"input": "in", "table": "table", "join": "left", "grace": "1h"}),
        bytes_per_record=120,
    ),
}
