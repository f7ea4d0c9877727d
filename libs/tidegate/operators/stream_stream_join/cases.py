"""The case of the law suite for stream-stream joins, and what the reference predicts."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from tidegate.contracts.records import Row
from tidegate.operators.stream_stream_join.config import SIDES, StreamStreamJoinConfig
from tidegate.operators.stream_stream_join.reference import Held, Pair, Reference
from tidegate.operators.stream_stream_join.strategies import stream_stream_join_configs, two_streams
from tidegate.operators.testing.cases import Case, columns, late_rows, play, record_bytes, rejected_rows, window_columns
from tidegate.operators.testing.laws import Event, Trace


def stream_stream_join_reference(config: StreamStreamJoinConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts."""
    reference = Reference(config)
    notes = play(reference, history, clock_ms)
    late, rejected = ([row for row, *_ in found] for found in (reference.late, reference.rejected))
    return Trace(
        emissions=[_result(pair) for pair in reference.emissions],
        late=_with_sides(late_rows(reference.late, "its window is closed", notes), late),
        rejected=_with_sides(rejected_rows(reference.rejected, config, notes), rejected),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        marks=notes.passed.marks,
        held=[_slot(held) for held in reference.in_order()],
        held_bytes=sum(record_bytes(held.row, held.window) for held in reference.held),
    )


def _with_sides(found: list[dict[str, Any]], rows: list[Row]) -> list[dict[str, Any]]:
    return [shown | {"side": SIDES[row.port]} for shown, row in zip(found, rows, strict=True)]


def _slot(held: Held) -> dict[str, Any]:
    own = {"side": SIDES[held.row.port], "waits": held.waits}
    return {"op": "put"} | columns(held.row) | own | window_columns(held.window)


def _result(pair: Pair) -> dict[str, Any]:
    rows = [row for row in (pair.left, pair.right) if row is not None]
    values = (_member(side, row) for side, row in zip(SIDES, (pair.left, pair.right), strict=True))
    shown = {
        "value": b"{%s,%s}" % tuple(values),
        "timestamp": max(row.timestamp for row in rows),
        "cause": "unmatched" if pair.alone else "matched",
    }
    return columns(rows[0]) | shown | window_columns(pair.window)


def _member(side: str, row: Row | None) -> bytes:
    name, value = side.encode(), b"null" if row is None else row.value or b""
    try:
        json.loads(value.decode())
    except ValueError:
        return b'"%s_bytes":"%s"' % (name, base64.b64encode(value))
    return b'"%s":%s' % (name, value)


CASES = {
    "stream_stream_join": Case(
        configs=stream_stream_join_configs(),
        histories=two_streams(),
        reference=stream_stream_join_reference,
        holding=StreamStreamJoinConfig.model_validate(
            {"input": "in", "right": "right", "join": "left", "before": 0, "after": "1h", "grace": "1h"}
        ),
        bytes_per_record=160,
        changing=False,
    ),
}
