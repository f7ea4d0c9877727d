"""The cases of the law suite for windowed aggregations, and what the reference predicts."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

from tidegate.contracts.records import Row
from tidegate.operators.testing.cases import Case, columns, late_rows, play, rejected_rows
from tidegate.operators.testing.laws import Event, Trace
from tidegate.operators.windowed_aggregation.config import Entry, Session, WindowedAggregationConfig
from tidegate.operators.windowed_aggregation.elements.reference import Reference as ElementsReference
from tidegate.operators.windowed_aggregation.elements.reference import Window as ElementsWindow
from tidegate.operators.windowed_aggregation.reference import Reference as WindowReference
from tidegate.operators.windowed_aggregation.reference import Window as AggregateWindow
from tidegate.operators.windowed_aggregation.reference import (
    as_written,
    average,
    planned,
    read_number,
    total,
)
from tidegate.operators.windowed_aggregation.strategies import (
    REDUCTION,
    element_histories,
    element_window_configs,
    mergeable_histories,
    reducing_configs,
    window_configs,
    window_histories,
)


def windows_reference(config: WindowedAggregationConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts."""
    reference = WindowReference(config)
    notes = play(reference, history, clock_ms)
    held = _in_order(reference.windows)
    return Trace(
        emissions=[
            _window(config, window, taken_back=cause == "merged") | {"cause": cause}
            for window, cause in reference.emissions
        ],
        late=late_rows(reference.late, "its windows are closed", notes),
        rejected=rejected_rows(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        marks=notes.passed.marks,
        held=[{"op": "put"} | _window(config, window) | _window_state(config, window) for window in held],
        held_bytes=sum(map(reference.size, held)),
        stopped_at=reference.stopped_at,
    )


def _in_order(windows: list[AggregateWindow]) -> list[AggregateWindow]:
    return sorted(windows, key=lambda window: (window.end, window.arrival, window.start))


def _window(config: WindowedAggregationConfig, window: AggregateWindow, taken_back: bool = False) -> dict[str, Any]:
    found = {entry.name: _number_text(entry, window.numbers) for entry in config.aggregate.entries}
    value = as_written(found, config.aggregate.gives_objects)
    row = Row(window.key, None if taken_back else value, window.timestamp, window.offset)
    return columns(row) | {"window_start": window.start, "window_end": window.end}


def _number_text(entry: Entry, numbers: list[dict[str, Any]]) -> str:
    number = AGGREGATES[entry.kind]([found.get(entry.name) for found in numbers])
    return repr(number).removesuffix(".0")


def _window_state(config: WindowedAggregationConfig, window: AggregateWindow) -> dict[str, Any]:
    numbers = [(entry.kind, [found.get(entry.name) for found in window.numbers]) for entry in planned(config)]
    words = b"".join(_words(kind, found) for kind, found in numbers)
    return {
        "arrival": window.arrival,
        "phase": ["pending", "emitted", "closed"].index(window.phase),
        "words": words,
    }


def _words(kind: str, numbers: list[Any]) -> bytes:
    if kind == "count":
        return struct.pack("q", len(numbers))
    if kind in ("min", "max"):
        number = AGGREGATES[kind](numbers)
        return struct.pack("qdq", *((0, number, 2) if isinstance(number, float) else (number, 0.0, 1)))
    doubles = [number for number in numbers if isinstance(number, float)]
    carries, low = divmod(sum(number for number in numbers if isinstance(number, int)) + 2**63, 2**64)
    count = [len(numbers)] if kind == "avg" else []
    return struct.pack("qdq" + "q" * len(count), low - 2**63, sum(doubles), (carries << 32) + len(doubles), *count)


def elements_reference(config: WindowedAggregationConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """Return the trace that the reference predicts."""
    reference = ElementsReference(config, functions=FUNCTIONS)
    notes = play(reference, history, clock_ms)
    held = [window for window in _in_order(reference.windows) if isinstance(window, ElementsWindow)]
    return Trace(
        emissions=[
            _window_row(cast(ElementsWindow, window)) | {"cause": cause} for window, cause in reference.emissions
        ],
        late=late_rows(reference.late, "its windows are closed", notes),
        rejected=rejected_rows(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        marks=notes.passed.marks,
        held=[
            *({"op": "put"} | _window_row(window) | _window_of_elements(window) for window in held),
            *({"op": "put"} | _element(config, window, cast(Row, row)) for window in held for row in window.numbers),
        ],
        held_bytes=sum(map(reference.size, held)),
        stopped_at=reference.stopped_at,
    )


def _window_row(window: ElementsWindow) -> dict[str, Any]:
    row = Row(window.key, window.value, window.timestamp, window.offset)
    return columns(row) | {"window_start": window.start, "window_end": window.end}


def _window_of_elements(window: ElementsWindow) -> dict[str, Any]:
    phase = ["pending", "emitted", "closed"].index(window.phase)
    return {"arrival": -1, "opened": window.arrival, "since": window.since, "phase": phase}


def _element(config: WindowedAggregationConfig, window: ElementsWindow, row: Row) -> dict[str, Any]:
    of_session = isinstance(config.window, Session)
    start, end = (row.timestamp, row.timestamp) if of_session else (window.start, window.end)
    bounds = {"window_start": start, "window_end": end}
    nothing = {"opened": None, "since": None, "phase": None}
    return columns(row._replace(headers=b"")) | bounds | {"arrival": row.offset} | nothing


def _number(row: Row) -> float:
    found = [read_number(row.value, path) for path in ((), ("n",))]
    return next((number for number, missing in found if not missing), float("nan"))


def _listed(rows: list[Row]) -> bytes:
    pairs = [[None if row.value is None else row.value.decode(), row.timestamp] for row in rows]
    return json.dumps(pairs, separators=(",", ":")).encode()


def _total_and_most(rows: list[Row]) -> bytes:
    read = [json.loads(row.value or b"") for row in rows]
    total = (sum(each.get("n") or 0 for each in read) + 2**63) % 2**64 - 2**63
    most = max((each["most"] for each in read if each.get("most") is not None), default=None)
    n = read[0].get("n") if len(read) == 1 else total
    return json.dumps({"n": n, "most": most}, separators=(",", ":")).encode()


FUNCTIONS: dict[str, Callable[[list[Row]], Any]] = {
    "tidegate.operators.testing.reducers:total_and_most": _total_and_most,
} | {
    f"tidegate.operators.testing.evictors:{name}": function
    for name, function in {
        "even": lambda rows: [_number(row) % 2 == 0 for row in rows],
        "multiple_of_3": lambda rows: [_number(row) % 3 == 0 for row in rows],
        "older_half": lambda rows: [at < len(rows) // 2 for at in range(len(rows))],
        "length_apart": lambda rows: abs(len(rows[0].value or b"") - len(rows[1].value or b"")),
        "listed": _listed,
    }.items()
}
"""What the functions of `testing.evictors` and `testing.reducers` do, on the rows of one window."""

AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {"count": len, "sum": total, "min": min, "max": max, "avg": average}


def _counting(**options: Any) -> WindowedAggregationConfig:
    counts = {"input": "records", "window": {"tumbling": "1h", "grace": 0}, "aggregate": {"count": True}}
    return WindowedAggregationConfig.model_validate(counts | options)


CASES = {
    "windowed_aggregation": Case(
        configs=window_configs(),
        histories=window_histories(),
        reference=windows_reference,
        holding=_counting(emit="final"),
        bytes_per_record=220,
    ),
    "windowed_aggregation with elements": Case(
        configs=element_window_configs(),
        histories=element_histories(),
        reference=elements_reference,
        holding=_counting(emit="on_time", evictor={"count": 10}),
        bytes_per_record=340,
    ),
    "windowed_aggregation that reduces": Case(
        configs=reducing_configs(),
        histories=mergeable_histories(),
        reference=elements_reference,
        holding=_counting(emit="final", aggregate=REDUCTION),
        bytes_per_record=340,
    ),
}
