"""What the laws need to know of each operator: how to configure it, feed it and foretell it.

One entry per kind at least; a second one where its state has another form.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.keys_reference import Window
from tidegate.operators.stream_table_join import StreamTableJoinConfig
from tidegate.operators.stream_table_join.reference import Reference as JoinReference
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.suppression.reference import Reference, Slot
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.operators.table_history.reference import Reference as TableReference
from tidegate.operators.windowed_aggregation import WindowedAggregationConfig
from tidegate.operators.windowed_aggregation.elements.reference import Reference as ElementsReference
from tidegate.operators.windowed_aggregation.elements.reference import Window as ElementsWindow
from tidegate.operators.windowed_aggregation.reference import Reference as WindowReference
from tidegate.operators.windowed_aggregation.reference import Window as AggregateWindow
from tidegate.operators.windowed_aggregation.reference import average, read_number, total
from tidegate.testing import strategies
from tidegate.testing.laws import Advance, Change, Clock, Event, Flush, Hold, Table, Trace


@dataclass(frozen=True, kw_only=True)
class Case:
    """`holding`: a configuration that holds every one of `rows_held(n)`, n keys of about 100 bytes."""

    configs: st.SearchStrategy[Any]
    histories: st.SearchStrategy[list[Event]]
    reference: Callable[[Any, Sequence[Event], int], Trace]
    holding: OperatorConfig
    bytes_per_record: int


@dataclass
class Notes:
    """What was so when each record had had its effect: by offset the clock, and how far it was behind stream time."""

    clock_ms: int
    clocks: dict[int, int] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=dict)

    def lateness(self, rejected: Sequence[tuple[Row, str]]) -> dict[str, int]:
        """The measures of the lateness of all records but the rejected ones."""
        trace = Trace()
        for offset in self.behind.keys() - {row.offset for row, _ in rejected}:
            late = max(0, self.behind[offset])
            trace.note_lateness(f"lateness_upto_{_bound_of_bin(late)}", 1)
            for name, number in (("sum", late), ("max", late), ("count", 1)):
                trace.note_lateness(f"lateness_{name}", number)
        return trace.lateness


def _bound_of_bin(late: int) -> int:
    """Exact up to 4 ms, then four bounds to each doubling; a double tells which, so it may be the next one."""
    bounds = [*range(5), *(quarter << doubling for doubling in range(62) for quarter in (5, 6, 7, 8))]
    return late if late <= 4 else next(bound for bound in bounds if bound > float(late - 1))


def _play(reference: Any, history: Sequence[Event], clock_ms: int) -> Notes:
    """The reference has seen the history, up to a stop."""
    notes = Notes(clock_ms)
    for event in history:
        if isinstance(event, Advance):
            reference.advance(max(0, reference.stream_time) + event.by_ms)
        elif isinstance(event, Flush):
            reference.flush()
        elif isinstance(event, Table):
            reference.table, reference.open_until = _table(event, notes.clock_ms), event.open_until
            reference.release(notes.clock_ms)
        elif isinstance(event, Clock):
            notes.clock_ms = event.ms
            reference.settle(notes.clock_ms)
        elif isinstance(event, Hold):
            reference.hold(event.needs)
        elif isinstance(event, Change):
            reference.config = event.config
            reference.settle(notes.clock_ms)
        else:
            reference.process(event, notes.clock_ms)
            if reference.stopped_at is not None:
                break
            notes.clocks[event.offset] = notes.clock_ms
            notes.behind[event.offset] = reference.stream_time - event.timestamp
    return notes


def suppression_reference(config: SuppressionConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells."""
    reference = Reference(config)
    return _trace(reference, _play(reference, history, clock_ms))


def _trace(reference: Reference, notes: Notes) -> Trace:
    held = sorted(reference.held.values(), key=lambda slot: (slot.place, slot.arrival))
    return Trace(
        emissions=[_columns(slot.row) | {"cause": cause} | _bounds(slot.window) for slot, cause in reference.emissions],
        late=_late(reference.late, "its window is closed" if reference.closes else "older than max_lateness", notes),
        rejected=_rejected(reference.rejected, reference.config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        superseded=reference.superseded,
        stream_time=reference.stream_time,
        held=[_slot(slot) for slot in held],
        held_bytes=reference.held_bytes,
        stopped_at=reference.stopped_at,
    )


def _slot(slot: Slot) -> dict[str, Any]:
    return {"op": "put"} | _columns(slot.row) | {"place": slot.place, "arrival": slot.arrival} | _bounds(slot.window)


def _bounds(window: Window) -> dict[str, Any]:
    return {} if window is None else dict(zip(("window_start", "window_end"), window, strict=True))


def table_history_reference(config: TableHistoryConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells."""
    reference = TableReference(config)
    notes = _play(reference, history, clock_ms)
    versions = sorted(
        ((row, window) for (_, window), chain in reference.versions.items() for row in chain.values()),
        key=lambda version: (version[0].timestamp, version[0].offset),
    )
    return Trace(
        late=_late(reference.late, "older than history_retention", notes),
        rejected=_rejected(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        superseded=reference.superseded,
        stream_time=reference.stream_time if history else -1,
        held=[{"op": "put"} | _columns(row) | _bounds(window) for row, window in versions],
        held_bytes=sum(_bytes(*version) for version in versions),
        floor=reference.floor if history and config.history_retention is not None else None,
    )


def stream_table_join_reference(config: StreamTableJoinConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells. Histories begin with a table."""
    reference = JoinReference(config, _table(history[0], clock_ms), open_until=history[0].open_until)
    notes = _play(reference, history[1:], clock_ms)
    return Trace(
        emissions=[_joined(config, *emission) for emission in reference.emissions],
        rejected=_rejected(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        held=[
            {"op": "put"} | _columns(held.row) | {"arrived": held.arrived} | _bounds(held.window)
            for held in reference.held
        ],
        held_bytes=sum(_bytes(held.row, held.window) for held in reference.held),
    )


def _table(table: Table, clock_ms: int) -> TableReference:
    reference = TableReference(table.config)
    for row in table.rows:
        reference.process(row, clock_ms)
    return reference


def _bytes(row: Row, window: Window) -> int:
    """The bytes that are held of a record: a windowed key has two numbers more."""
    return len(row.key or b"") + len(row.value or b"") + len(row.headers) + (0 if window is None else 16)


def _joined(config: StreamTableJoinConfig, row: Row, window: Window, version: Row | None, cause: str) -> dict[str, Any]:
    stream, table = row.value or b"", version and version.value
    value = b"-".join([stream, b"null" if table is None else table])
    if config.joiner is None:
        value = b"{%s,%s}" % (_named(b"stream", stream), _named(b"table", table))
    found = {"value": value, "cause": cause, "valid_from": version and version.timestamp}
    return _columns(row) | found | _bounds(window)


def _named(name: bytes, value: bytes | None) -> bytes:
    try:
        json.loads((b"null" if value is None else value).decode())
    except ValueError:
        return b'"%s_bytes":"%s"' % (name, base64.b64encode(value or b""))
    return b'"%s":%s' % (name, b"null" if value is None else value)


def _late(late: Sequence[tuple[Row, int, int]], cause: str, notes: Notes) -> list[dict[str, Any]]:
    ahead = {True: ", though it is ahead of stream time", False: ""}
    return [
        _columns(row) | {"cause": cause + ahead[notes.behind[row.offset] < 0], "lateness": lateness, "bound": bound}
        for row, lateness, bound in late
    ]


def _rejected(rejected: Sequence[tuple[Row, str]], config: OperatorConfig, notes: Notes) -> list[dict[str, Any]]:
    found = []
    for row, cause in rejected:
        ahead = min(notes.clocks[row.offset] + (config.max_ahead or 0), MAX_TIME)
        bounds = {"too far ahead": ahead, "timestamp out of range": MAX_TIME}
        found.append(_columns(row) | {"cause": cause, "lateness": None, "bound": bounds.get(cause)})
    return found


def _columns(row: Row) -> dict[str, Any]:
    return {
        "key": row.key,
        "value": row.value,
        "headers": row.headers or None,
        "timestamp": None if row.timestamp == NO_TIMESTAMP else row.timestamp,
        "offset": row.offset,
    }


def windows_reference(config: WindowedAggregationConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells."""
    reference = WindowReference(config)
    notes = _play(reference, history, clock_ms)
    held = sorted(reference.windows, key=lambda window: (window.end, window.arrival, window.start))
    return Trace(
        emissions=[
            _window(config, window, taken_back=cause == "merged") | {"cause": cause}
            for window, cause in reference.emissions
        ],
        late=_late(reference.late, "its windows are closed", notes),
        rejected=_rejected(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        held=[{"op": "put"} | _window(config, window) | _window_state(config, window) for window in held],
        held_bytes=sum(map(reference.size, held)),
        stopped_at=reference.stopped_at,
    )


def _window(config: WindowedAggregationConfig, window: AggregateWindow, taken_back: bool = False) -> dict[str, Any]:
    found = {name: _told(name, window.numbers) for name in AGGREGATES if name in config.aggregate.model_fields_set}
    text = ",".join(f'"{name}":{number}' for name, number in found.items())
    value = f"{{{text}}}" if len(found) > 1 else next(iter(found.values()))
    row = Row(window.key, None if taken_back else value.encode(), window.timestamp, window.offset)
    return _columns(row) | {"window_start": window.start, "window_end": window.end}


def _told(name: str, numbers: list[dict[str, Any]]) -> str:
    number = AGGREGATES[name]([found.get(name) for found in numbers])
    return repr(number).removesuffix(".0")


def _window_state(config: WindowedAggregationConfig, window: AggregateWindow) -> dict[str, Any]:
    names = [name for name in AGGREGATES if name in config.aggregate.model_fields_set]
    words = b"".join(_words(name, [found.get(name) for found in window.numbers]) for name in names)
    return {
        "arrival": window.arrival,
        "phase": ["pending", "told", "closed"].index(window.phase),
        "words": words,
    }


def _words(name: str, numbers: list[Any]) -> bytes:
    if name == "count":
        return struct.pack("q", len(numbers))
    if name in ("min", "max"):
        number = AGGREGATES[name](numbers)
        return struct.pack("qdq", *((0, number, 2) if isinstance(number, float) else (number, 0.0, 1)))
    doubles = [number for number in numbers if isinstance(number, float)]
    carries, low = divmod(sum(number for number in numbers if isinstance(number, int)) + 2**63, 2**64)
    count = [len(numbers)] if name == "avg" else []
    return struct.pack("qdq" + "q" * len(count), low - 2**63, sum(doubles), (carries << 32) + len(doubles), *count)


def elements_reference(config: WindowedAggregationConfig, history: Sequence[Event], clock_ms: int) -> Trace:
    """The trace that the reference foretells."""
    reference = ElementsReference(config, functions=FUNCTIONS)
    notes = _play(reference, history, clock_ms)
    held = sorted(reference.windows, key=lambda window: (window.end, window.arrival, window.start))
    return Trace(
        emissions=[_told_window(window) | {"cause": cause} for window, cause in reference.emissions],
        late=_late(reference.late, "its windows are closed", notes),
        rejected=_rejected(reference.rejected, config, notes),
        lateness=notes.lateness(reference.rejected),
        applied=reference.applied,
        stream_time=reference.stream_time,
        held=[
            *({"op": "put"} | _told_window(window) | _window_of_elements(window) for window in held),
            *({"op": "put"} | _element(window, row) for window in held for row in window.numbers),
        ],
        held_bytes=sum(map(reference.size, held)),
        stopped_at=reference.stopped_at,
    )


def _told_window(window: ElementsWindow) -> dict[str, Any]:
    row = Row(window.key, window.value, window.timestamp, window.offset)
    return _columns(row) | {"window_start": window.start, "window_end": window.end}


def _window_of_elements(window: ElementsWindow) -> dict[str, Any]:
    phase = ["pending", "told", "closed"].index(window.phase)
    return {"arrival": -1, "opened": window.arrival, "since": window.since, "phase": phase}


def _element(window: ElementsWindow, row: Row) -> dict[str, Any]:
    bounds = {"window_start": window.start, "window_end": window.end}
    nothing = {"opened": None, "since": None, "phase": None}
    return _columns(row._replace(headers=b"")) | bounds | {"arrival": row.offset} | nothing


def _number(row: Row) -> float:
    found = [read_number(row.value, name) for name in (None, "n")]
    return next((number for number, missing in found if not missing), float("nan"))


def _listed(rows: list[Row]) -> bytes:
    pairs = [[None if row.value is None else row.value.decode(), row.timestamp] for row in rows]
    return json.dumps(pairs, separators=(",", ":")).encode()


FUNCTIONS: dict[str, Callable[[list[Row]], Any]] = {
    f"tidegate.testing.evictors:{name}": function
    for name, function in {
        "even": lambda rows: [_number(row) % 2 == 0 for row in rows],
        "multiple_of_3": lambda rows: [_number(row) % 3 == 0 for row in rows],
        "older_half": lambda rows: [at < len(rows) // 2 for at in range(len(rows))],
        "length_apart": lambda rows: abs(len(rows[0].value or b"") - len(rows[1].value or b"")),
        "listed": _listed,
    }.items()
}
"""What the functions of `testing.evictors` do, on the rows of one window."""

AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {"count": len, "sum": total, "min": min, "max": max, "avg": average}
CASES = {
    "suppression": Case(
        configs=strategies.suppression_configs(),
        histories=strategies.windowed_histories(),
        reference=suppression_reference,
        holding=SuppressionConfig.model_validate({"input": "records", "until": {"time_limit": "1h"}}),
        bytes_per_record=120,
    ),
    "table_history": Case(
        configs=strategies.table_history_configs(),
        histories=strategies.table_histories() | strategies.windowed_histories(),
        reference=table_history_reference,
        holding=TableHistoryConfig.model_validate({"input": "records", "history_retention": "1h"}),
        bytes_per_record=160,
    ),
    "stream_table_join": Case(
        configs=strategies.stream_table_join_configs(),
        histories=strategies.join_histories(),
        reference=stream_table_join_reference,
        holding=StreamTableJoinConfig.model_validate({"input": "in", "table": "table", "join": "left", "grace": "1h"}),
        bytes_per_record=120,
    ),
    "windowed_aggregation": Case(
        configs=strategies.window_configs(),
        histories=strategies.window_histories(),
        reference=windows_reference,
        holding=WindowedAggregationConfig.model_validate(
            {
                "input": "records",
                "window": {"tumbling": "1h", "grace": 0},
                "aggregate": {"count": True},
                "emit": "final",
            }
        ),
        bytes_per_record=220,
    ),
    "windowed_aggregation with elements": Case(
        configs=strategies.element_window_configs(),
        histories=strategies.element_histories(),
        reference=elements_reference,
        holding=WindowedAggregationConfig.model_validate(
            {
                "input": "records",
                "window": {"tumbling": "1h", "grace": 0},
                "aggregate": {"count": True},
                "emit": "on_time",
                "evictor": {"count": 10},
            }
        ),
        bytes_per_record=340,
    ),
}
