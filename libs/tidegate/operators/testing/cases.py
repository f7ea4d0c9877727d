"""What a case of the law suite is, and the parts that the kinds' cases share.

A case says how to configure a kind, feed it and predict it. A kind has one case at least, and a second one where its
state has another form. They are in the kind's folder, in `cases.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.event_time import MAX_TIME, MAX_TIMESTAMP, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.registry import kinds, test_part
from tidegate.operators.testing.keys_reference import Window
from tidegate.operators.testing.laws import WINDOW_MS, Advance, Change, Clock, Event, Flush, Hold, Table, Trace


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of the law suite.

    `reference` plays a history from a clock on and returns the predicted trace. `holding`: a configuration that holds
    every record of distinct keys, about `bytes_per_record` beside key and value. `changing`: whether the reference
    plays a configuration that changes.
    """

    configs: st.SearchStrategy[Any]
    histories: st.SearchStrategy[list[Event]]
    reference: Callable[[Any, Sequence[Event], int], Trace]
    holding: OperatorConfig
    bytes_per_record: int
    changing: bool = True


@dataclass
class Notes:
    """By offset: the clock when a record was processed, and how far the record was behind stream time then.

    `passed` has the marks that the reference passes on.
    """

    clock_ms: int
    clocks: dict[int, int] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=dict)
    passed: Trace = field(default_factory=Trace)

    def lateness(self, rejected: Sequence[tuple[Row, str]]) -> dict[str, int]:
        """Return the measures of the lateness of all records but the rejected ones."""
        trace = Trace()
        for offset in self.behind.keys() - {row.offset for row, _ in rejected}:
            late = max(0, self.behind[offset])
            trace.note_lateness(f"lateness_upto_{_bound_of_bin(late)}", 1)
            for name, number in (("sum", late), ("max", late), ("count", 1)):
                trace.note_lateness(f"lateness_{name}", number)
        return trace.lateness


@cache
def _bound_of_bin(late: int) -> int:
    """Exact up to 4 ms, then four bounds per doubling. Computed with a double, so it may be the next bound."""
    bounds = [*range(5), *(quarter << doubling for doubling in range(62) for quarter in (5, 6, 7, 8))]
    return late if late <= 4 else next(bound for bound in bounds if bound > float(late - 1))


def play(
    reference: Any, history: Sequence[Event], clock_ms: int, table_of: Callable[[Table, int], Any] | None = None
) -> Notes:
    """Play the history on the reference, up to a stop, and return the notes.

    `table_of` makes the reference of a table, for operators that read one. After each event the reference passes time
    on: its stream time less the hold of its kind, and no more than its `oldest` if it has one. Before that it passes
    on, before each result that its `reached` has a time for, that time less the hold, if stream time came so far.
    """
    notes = Notes(clock_ms)
    for event in history:
        emitted = len(_emissions(reference))
        if isinstance(event, Advance):
            reference.advance(max(0, reference.stream_time) + event.by_ms)
        elif isinstance(event, Flush):
            reference.flush()
        elif isinstance(event, Table):
            assert table_of is not None
            _read(reference, event, table_of(event, notes.clock_ms), notes.clock_ms)
        elif isinstance(event, Clock):
            notes.clock_ms = event.ms
            reference.settle(notes.clock_ms)
        elif isinstance(event, Hold):
            reference.hold(event.needs)
        elif isinstance(event, Change):
            _reconfigure(reference, event, notes)
        elif event.time_only:
            _pass_time(reference, event.timestamp, notes.clock_ms)
        else:
            reference.process(event, notes.clock_ms)
            if reference.stopped_at is not None:
                break
            notes.clocks[event.offset] = notes.clock_ms
            notes.behind[event.offset] = reference.stream_time - event.timestamp
        _note_marks(reference, notes, emitted)
    return notes


def _read(reference: Any, event: Table, table: Any, clock_ms: int) -> None:
    """Read the table from now on. What waits for it no longer leaves now, or with the event that shares its batch."""
    reference.table, reference.open_until = table, event.open_until
    if not event.shares_batch:
        reference.release(clock_ms)


def _reconfigure(reference: Any, change: Change, notes: Notes) -> None:
    """Use another configuration. What that no longer holds is released by its batch, if one comes with it."""
    reference.config = change.config
    notes.passed.note_change()
    if change.runs:
        reference.settle(notes.clock_ms)


def _pass_time(reference: Any, timestamp: int, clock_ms: int) -> None:
    """Let time come as far as the timestamp, unless a record with it would be rejected."""
    ahead = reference.config.max_ahead
    if 0 <= timestamp <= (MAX_TIME if ahead is None else min(clock_ms + ahead, MAX_TIME)):
        reference.stream_time = max(reference.stream_time, timestamp)
        reference.settle(clock_ms)


def _emissions(reference: Any) -> list[Any]:
    """Return the emissions of the reference; a table has none."""
    found: list[Any] = getattr(reference, "emissions", [])
    return found


def _note_marks(reference: Any, notes: Notes, emitted: int) -> None:
    hold = reference.config.hold(WINDOW_MS)
    if hold is None:
        return
    oldest = getattr(reference, "oldest", MAX_TIMESTAMP)
    for at, emission in enumerate(_emissions(reference)[emitted:], emitted):
        reached = reference.reached(*emission) if hasattr(reference, "reached") else None
        if reached is not None and reached <= reference.stream_time:
            notes.passed.note_mark(at, min(reached - hold, oldest))
    notes.passed.note_mark(len(reference.emissions), min(reference.stream_time - hold, oldest))


def window_columns(window: Window) -> dict[str, Any]:
    """Return the columns of a key's window."""
    return {} if window is None else dict(zip(("window_start", "window_end"), window, strict=True))


def record_bytes(row: Row, window: Window) -> int:
    """Return the bytes that are held of a record: a windowed key has two numbers more."""
    return len(row.key or b"") + len(row.value or b"") + len(row.headers) + (0 if window is None else 16)


def late_rows(late: Sequence[tuple[Row, int, int]], cause: str, notes: Notes) -> list[dict[str, Any]]:
    """Return late records, each with lateness and bound, as rows of the log."""
    ahead = {True: ", though it is ahead of stream time", False: ""}
    return [
        columns(row) | {"cause": cause + ahead[notes.behind[row.offset] < 0], "lateness": lateness, "bound": bound}
        for row, lateness, bound in late
    ]


def rejected_rows(rejected: Sequence[tuple[Row, str]], config: OperatorRules, notes: Notes) -> list[dict[str, Any]]:
    """Return rejected records as rows of the log."""
    found = []
    for row, cause in rejected:
        ahead = min(notes.clocks[row.offset] + (config.max_ahead or 0), MAX_TIME)
        bounds = {"too far ahead": ahead, "timestamp out of range": MAX_TIME}
        found.append(columns(row) | {"cause": cause, "lateness": None, "bound": bounds.get(cause)})
    return found


def columns(row: Row) -> dict[str, Any]:
    """Return the columns that every record has in the log."""
    return {
        "key": row.key,
        "value": row.value,
        "headers": row.headers or None,
        "timestamp": None if row.timestamp == NO_TIMESTAMP else row.timestamp,
        "offset": row.offset,
    }


@cache
def cases() -> dict[str, Case]:
    """Return the cases of all kinds by name."""
    found: dict[str, Case] = {}
    for kind in kinds():
        found |= test_part(kind, "cases").CASES
    return found
