"""Reference implementation of pipelines, for tests only: the references of the steps, one behind the other.

Each step plays its whole history before the next one begins. What becomes of each event is found by playing the history
up to it once more, so this is slow, and knows nothing of batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from tidegate.contracts.config import KeyRules
from tidegate.contracts.event_time import MAX_TIME, NO_STREAM_TIME, NO_TIMESTAMP
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.testing.keys_reference import Window, key_and_window
from tidegate.operators.testing.laws import Advance, Change, Clock, Event, Flush, Table, Trace

WINDOW = ("window_start", "window_end")
VERSION = ("valid_from",)
SOURCELESS = -1


class Moved(NamedTuple):
    """An event on its way, the offset of the input record that caused it, and which event of the history that was."""

    event: Event
    source: int
    turn: int


Play = Callable[[Sequence[Event]], Trace]
Value = TypeVar("Value")


class Passing(NamedTuple):
    """A stateless step, and the name of its run.

    `values`: those of the rows that it makes of a row; a row of which none is made passes its time on, if it has a key.
    `refusal`: why it rejects a row; None: it does not. `multiplies`: its rows are no records of the input any more.
    """

    name: str
    values: Callable[[Row], list[bytes | None]]
    refusal: Callable[[Row], str | None] = lambda _: None
    multiplies: bool = False


@dataclass
class Way:
    """What leaves a step, or the input. `in_input`: rows are records of the input; `windowed`: keys have windows."""

    moved: list[Moved]
    in_input: bool = False
    windowed: bool = False


@dataclass
class Chain:
    """The ways of a history through the steps, by step, and everything that becomes visible.

    `takers`: by offset how many branches have taken a record of the input. `advanced`: by turn to what time an advance
    advances the first operators: from the stream time of the first of them.
    `joins`: the steps that read a table.
    `given`: the values of the input's records, by offset; a refused one has the value that it came with.
    """

    passes_time: bool
    ways: dict[Any, Way]
    given: dict[int, bytes | None]
    trace: Trace = field(default_factory=Trace)
    times: list[tuple[str, int, int]] = field(default_factory=list)
    takers: Counter[int] = field(default_factory=Counter)
    advanced: dict[int, int] = field(default_factory=dict)
    joins: set[Any] = field(default_factory=set)

    @classmethod
    def of(cls, history: Sequence[Event], passes_time: bool) -> Chain:
        """Return a chain without steps."""
        moved = [Moved(event, source_of(event), turn) for turn, event in enumerate(history)]
        return cls(passes_time, {"input": Way(moved, in_input=True)}, given_values(history))

    def merged(self, steps: Sequence[Any]) -> Way:
        """Return the way behind these steps: what one event of the history causes is in the order of the steps."""
        if len(steps) == 1:
            return self.ways[steps[0]]
        for way in (self.ways[step] for step in steps if self.ways[step].in_input):
            self.takers.update(moved.source for moved in way.moved if is_record(moved.event))
        every = sorted((moved for step in steps for moved in self.ways[step].moved), key=lambda moved: moved.turn)
        whole = [moved for moved in every if isinstance(moved.event, Row)]
        once = {moved.turn: moved for moved in every if not isinstance(moved.event, Row)}
        changes = [moved for moved in once.values() if isinstance(moved.event, Change)]
        others = [moved for moved in once.values() if not isinstance(moved.event, Change)]
        together = sorted([*changes, *whole, *others], key=lambda moved: moved.turn)
        return Way(together, False, self.ways[steps[0]].windowed)

    def pass_by(self, step: Any, before: Way, passings: Sequence[Passing]) -> None:
        """Let the way through a step that holds no state, which is another one of `passings` after each change."""
        way = list[Moved]()
        for moved, passing in along(before.moved, passings):
            if not is_record(moved.event):
                way.append(moved)
                continue
            assert isinstance(moved.event, Row)
            if (reason := passing.refusal(moved.event)) is not None:
                refused = {"cause": reason, "lateness": None, "bound": None}
                self.trace.rejected.append(
                    as_given(columns_of(moved.event)) | refused | self._of(passing.name, moved.source, before)
                )
                continue
            way += passed(moved, passing.values(moved.event))
            if passing.multiplies and before.in_input and passing.values(moved.event):
                self.takers.update([moved.source])
        in_input = before.in_input and not passings[0].multiplies
        way = [moved for moved in way if self.passes_time or not is_mark(moved.event)]
        self.ways[step] = replace(before, in_input=in_input, moved=way)

    def operate(
        self,
        step: Any,
        name: str,
        before: Way,
        play: Play,
        holds: Sequence[int | None],
        *,
        windows: bool,
        shown: str | None = None,
    ) -> None:
        """Let an operator take the way; what it emits and the time that it passes on are the way behind it.

        `holds`: how far its marks stay behind its time, at the beginning and after each change. `shown`: the step whose
        name its refused rows have; default: itself.
        """
        arriving = before.moved if before.in_input else list(_numbered(before.moved))
        arriving = self._with_common_advances(arriving, play)
        whole = play([moved.event for moved in arriving])
        sources = {moved.event.offset: moved.source for moved in arriving if is_record(moved.event)}  # type: ignore[union-attr]
        refused = set[int]()
        for rows, due in ((self.trace.late, whole.late), (self.trace.rejected, whole.rejected)):
            rows += [as_given(row) | self._of(shown or name, sources[row["offset"]], before) for row in due]
            refused |= {sources[row["offset"]] for row in due}
        if before.in_input:
            self.takers.update(set(sources.values()) - refused)
        self.trace.held += [as_given(row) | {"step": name} for row in whole.held]
        self.trace.held_bytes += whole.held_bytes - (
            sum(map(_bytes_not_given, whole.held)) if step in self.joins else 0
        )
        self.times.append((name, whole.stream_time, len(sources)))
        behind = list(_behind(arriving, play, holds if self.passes_time else [None] * len(holds)))
        self.ways[step] = Way(behind, windowed=windows or before.windowed)

    def _with_common_advances(self, arriving: Sequence[Moved], play: Play) -> list[Moved]:
        """Return the events, where an advance advances to the same time as in the first operator."""
        found: list[Moved] = []
        for moved in arriving:
            if isinstance(moved.event, Advance):
                now = max(0, play([each.event for each in found]).stream_time)
                to = self.advanced.setdefault(moved.turn, now + moved.event.by_ms)
                moved = moved._replace(event=Advance(max(0, to - now)))
            found.append(moved)
        return found

    def _of(self, name: str, source: int, before: Way) -> dict[str, Any]:
        given = {"value": self.given[source]} if before.in_input else {}
        return given | {"step": name, "source": source, "topic": None if before.in_input else f"step:{name}"}

    def note_refused(self, offsets: Sequence[int]) -> int:
        """Return how many of the input's records are applied; rows of those that a branch took are of steps alone."""
        refused = set[int]()
        for row in (*self.trace.late, *self.trace.rejected):
            row["topic"] = row["topic"] or (f"step:{row['step']}" if self.takers[row["source"]] else None)
            refused |= {row["source"]} if row["topic"] is None else set()
        return len(offsets) - len(refused)

    def emissions(self, emitting: Sequence[Mapping[Any, str]]) -> list[dict[str, Any]]:
        """Return what the steps emit. `emitting`: which ones do, by name, at the beginning and after each change."""
        windowed = any(self.ways[step].windowed for steps in emitting for step in steps)
        joined = any(self.joins & steps.keys() for steps in emitting)
        blank = dict.fromkeys([*(WINDOW if windowed else ()), *(VERSION if joined else ())])
        return [
            blank | self._shown(moved.event.row, step) | {"step": names[step], "source": moved.source}  # type: ignore[union-attr]
            for step in dict.fromkeys(step for steps in emitting for step in steps)
            for moved, names in along(self.ways[step].moved, emitting)
            if is_record(moved.event) and step in names
        ]

    def _shown(self, row: dict[str, Any], step: Any) -> dict[str, Any]:
        """Return the row as a step emits it: the version that a record was joined with is known of the join alone."""
        hidden = () if step in self.joins else VERSION
        return {name: value for name, value in as_given(row).items() if name not in hidden}


@dataclass
class PassThrough:
    """What takes the records of the input where no step that holds state does. `rejected`: (row, reason)."""

    config: KeyRules
    stream_time: int = NO_STREAM_TIME
    emissions: list[tuple[Row, Window]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    stopped_at: None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """Reject the record, or emit it."""
        own = key_and_window(row, self.config)
        if reason := self._rejection(row, own.fault, clock_ms):
            self.rejected.append((row, reason))
            return
        self.emissions.append((row._replace(key=own.key), own.window))
        self.advance(row.timestamp)

    def settle(self, clock_ms: int) -> None:
        """Do nothing: nothing is held."""

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))

    def flush(self) -> None:
        """Do nothing: nothing is held."""

    def _rejection(self, row: Row, fault: str, clock_ms: int) -> str:
        if row.timestamp == NO_TIMESTAMP:
            return "no timestamp: null"
        if fault or (self.config.windowed and row.key is None):
            return fault or "null key"
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        ahead = self.config.max_ahead
        return "too far ahead" if ahead is not None and row.timestamp > clock_ms + ahead else ""


class Emitted(Row):
    """A row that a step has emitted, with all of its columns."""

    row: dict[str, Any]


def along(way: Sequence[Moved], values: Sequence[Value]) -> Iterator[tuple[Moved, Value]]:
    """Yield the way, each event with the value that counts for it: the next one from each change on."""
    left = iter(values)
    value = next(left)
    for moved in way:
        if isinstance(moved.event, Change):
            value = next(left)
        yield moved, value


def passed(moved: Moved, values: Sequence[bytes | None]) -> list[Moved]:
    """Return a record with each of the values; its time alone if there are none, and nothing if it has no key."""
    assert isinstance(moved.event, Row)
    if values or moved.event.key is None:
        return [moved._replace(event=valued(moved.event, value)) for value in values]
    return [moved._replace(event=moved.event._replace(time_only=True))]


def _behind(arriving: Sequence[Moved], play: Play, holds: Sequence[int | None]) -> Iterator[Moved]:
    """Yield what leaves an operator after each event with its marks, then the flush itself; a change goes first."""
    before = Trace()
    for count, (moved, hold) in enumerate(along(arriving, holds), 1):
        trace = play([each.event for each in arriving[:count]])
        if isinstance(moved.event, Change):
            yield moved
        yield from made(before, trace, moved, hold)
        if isinstance(moved.event, Flush | Table | Clock):
            yield Moved(moved.event, SOURCELESS, moved.turn)
        before = trace


def made(before: Trace, after: Trace, moved: Moved, hold: int | None) -> Iterator[Moved]:
    """Yield what an event made leave an operator, with its marks, unless `hold` is None: it passes none on.

    A change repeats the mark, which a new step has not received yet.
    """
    source = moved.source if isinstance(moved.event, Row) else SOURCELESS
    marks = after.marks[len(before.marks) :]
    if isinstance(moved.event, Change) and hold is not None and after.stream_time - hold > NO_STREAM_TIME:
        marks = [*marks, (len(after.emissions), after.stream_time - hold)]
    for event in with_marks(after.emissions, len(before.emissions), marks if hold is not None else ()):
        yield Moved(event, source, moved.turn)


def with_marks(emissions: Sequence[dict[str, Any]], begin: int, marks: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """Yield the emissions from `begin` on, each behind the marks before it. `marks`: (before which, time)."""
    left = [(at, 1, _emitted(row)) for at, row in enumerate(emissions[begin:], begin)]
    passed = [(at, 0, Row(None, None, time, 0, time_only=True)) for at, time in marks]
    return (event for _, _, event in sorted([*left, *passed], key=lambda each: each[:2]))


def _emitted(row: dict[str, Any]) -> Emitted:
    headers = row["headers"] or b""
    if "window_start" in row:
        names = (HEADER_WINDOW_START, HEADER_WINDOW_END)
        headers = encode_headers((name.encode(), b"%d" % row[of]) for name, of in zip(names, WINDOW, strict=True))
    found = Emitted(row["key"], row["value"], row["timestamp"], row["offset"], headers)
    found.row = row
    return found


def valued(event: Event, value: bytes | None) -> Event:
    """Return the record with another value."""
    assert isinstance(event, Row)
    found = event._replace(value=value)
    if isinstance(found, Emitted) and isinstance(event, Emitted):
        found.row = event.row | {"value": value}
    return found


def as_given(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without the headers that tell the next reference its window: within a pipeline it is a column."""
    return row | {"headers": None} if HEADER_WINDOW_START.encode() in (row["headers"] or b"") else row


def _bytes_not_given(row: dict[str, Any]) -> int:
    return len(row["headers"] or b"") - len(as_given(row)["headers"] or b"")


def _numbered(way: Sequence[Moved]) -> Iterator[Moved]:
    """Yield the way with arrival numbers as offsets."""
    received = 0
    for moved in way:
        if isinstance(moved.event, Row):
            yield moved._replace(event=moved.event._replace(offset=received))
            received += not moved.event.time_only
        else:
            yield moved


def given_values(history: Sequence[Event]) -> dict[int, bytes | None]:
    """Return the values of the records, by offset."""
    return {event.offset: event.value for event in history if isinstance(event, Row) and not event.time_only}


def source_of(event: Event) -> int:
    return event.offset if isinstance(event, Row) else SOURCELESS


def is_record(event: Event) -> bool:
    return isinstance(event, Row) and not event.time_only


def is_mark(event: Event) -> bool:
    return isinstance(event, Row) and event.time_only


def columns_of(event: Event) -> dict[str, Any]:
    assert isinstance(event, Row)
    if isinstance(event, Emitted):
        return {name: event.row[name] for name in ("key", "value", "headers", "timestamp", "offset")}
    timestamp = None if event.timestamp == -(2**63) else event.timestamp
    return {
        "key": event.key,
        "value": event.value,
        "headers": event.headers or None,
        "timestamp": timestamp,
        "offset": event.offset,
    }
