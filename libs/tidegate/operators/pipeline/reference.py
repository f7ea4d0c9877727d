"""Reference implementation of pipelines, for tests only: the references of the steps, one behind the other.

Each step plays its whole history before the next one begins. What becomes of each event is found by playing the history
up to it once more, so this is slow, and knows nothing of batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.event_time import MAX_TIME, NO_STREAM_TIME, NO_TIMESTAMP
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.testing.keys_reference import Window, key_and_window
from tidegate.operators.testing.laws import Advance, Change, Clock, Event, Flush, Table, Trace

WINDOW = ("window_start", "window_end")
VERSION = ("valid_from",)
SOURCELESS = -1
INPUT = "input"


class Moved(NamedTuple):
    """An event on its way, the offset of the input record that caused it, and which event of the history that was.

    `arrived`: within a run of stateless steps, the record as it came to the run.
    """

    event: Event
    source: int
    turn: int
    arrived: Row | None = None


Play = Callable[[OperatorConfig, Sequence[Event]], Trace]
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


class Holder(NamedTuple):
    """A step that holds state: its configuration, and how far its marks stay behind its time (None: no marks).

    `windows`: its results have windows. `joins`: it reads a table. `life`: how often it had been removed before.
    """

    config: OperatorConfig
    hold: int | None
    life: int = 0
    windows: bool = False
    joins: bool = False


class Node(NamedTuple):
    """A step under one configuration. `reads`: the steps whose results it takes. `shown`: its name in refused rows."""

    name: str
    shown: str
    reads: Sequence[Any]
    does: Holder | Passing


class Under(NamedTuple):
    """What the pipeline is under one configuration.

    `nodes`: the steps, each behind those that it reads. `emitting`: those whose results are emissions, with the name
    that these have.
    """

    nodes: dict[Any, Node]
    emitting: dict[Any, str]

    def first(self) -> str:
        """Return the name of the first step that holds state: its time is that of the partition."""
        return next(node.name for node in self.nodes.values() if isinstance(node.does, Holder))


class Stand(NamedTuple):
    """Where a step stands: its stream time, and how many records it has received."""

    stream_time: int = NO_STREAM_TIME
    received: int = 0


@dataclass
class Way:
    """What leaves a step, or the input. `in_input`: rows are records of the input; `windowed`: keys have windows."""

    moved: list[Moved]
    in_input: bool = False
    windowed: bool = False


@dataclass
class Life:
    """A step that holds state, from its arrival to its removal: what it has taken, and what became visible of it.

    `sources`: by offset the source of what it has taken last with that offset. `of_input`: the sources of those that
    were records of the input. `untaken`: those that were refused. `owes`: its mark is repeated with the next event,
    because a change came without a batch, or a table is read with that event. `lent`: where in `taken` it got the time
    of the partition, and where it stood then.
    """

    config: OperatorConfig
    received: int
    taken: list[Event] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)
    sources: dict[int, int] = field(default_factory=dict)
    of_input: set[int] = field(default_factory=set)
    untaken: set[int] = field(default_factory=set)
    owes: bool = False
    lent: tuple[int, Stand] | None = None

    def stands(self) -> Stand:
        """Return where the step stands."""
        return Stand(self.trace.stream_time, self.received)

    def own_stand(self) -> Stand | None:
        """Return where the step stands by itself; None if it has not moved since it got the time of the partition."""
        return None if self.lent is not None and self.lent[1] == self.stands() else self.stands()

    def give_back(self, play: Play) -> None:
        """Give the time of the partition back, unless the step has moved since."""
        if self.lent is not None and self.own_stand() is None:
            del self.taken[self.lent[0]]
            self.trace = play(self.config, self.taken)
        self.lent = None

    def repeats_mark(self, event: Event) -> bool:
        """Return whether the mark is repeated behind the event.

        A new step has not received it yet; and behind a version of a table it lets leave what waited for that version.
        """
        owed = self.owes
        begins = isinstance(event, Table) and event.shares_batch
        self.owes = begins or (isinstance(event, Change) and not event.runs)
        return (owed or isinstance(event, Change)) and not begins

    def take(self, moved: Moved, play: Play, in_input: bool, then: Sequence[Advance] = ()) -> Trace:
        """Take an event, and what comes with it; return what was visible before."""
        before, event = self.trace, moved.event
        if is_record(event):
            assert isinstance(event, Row)
            self.sources[event.offset] = moved.source
            self.of_input |= {moved.source} if in_input else set()
            self.received += 1
        self.taken += [event, *then]
        self.trace = play(self.config, self.taken)
        self.lent = (len(self.taken) - 1, self.stands()) if then else self.lent
        return before

    def refused(self, before: Trace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rows that it found late and those that it rejected since then."""
        return self.trace.late[len(before.late) :], self.trace.rejected[len(before.rejected) :]


@dataclass
class Chain:
    """The ways of a history through the steps, by configuration and step, and everything that becomes visible.

    `unders`: what the pipeline is at the beginning and after each change; the number of one of them is an age of the
    history. `given`: the values of the input's records, by offset; a refused one has the value that it came with.
    `takers`: by offset how many branches have taken a record of the input. `advanced`: by turn to what time an advance
    advances the first operators: from the stream time of the first of them. `lives`: by name, and how often the step
    had been removed before. `stands`: where each step stands by itself. `times`: the stream time of each step at the
    end of each age. `refused`: late and rejected rows, each with its turn. `stops`: the turns at which steps first
    reached a bound.
    """

    unders: Sequence[Under]
    passes_time: bool
    ways: dict[tuple[int, Any], Way]
    given: dict[int, bytes | None]
    lives: dict[tuple[str, int], Life] = field(default_factory=dict)
    stands: dict[str, Stand] = field(default_factory=dict)
    times: dict[tuple[int, str], int] = field(default_factory=dict)
    takers: Counter[int] = field(default_factory=Counter)
    advanced: dict[int, int] = field(default_factory=dict)
    refused: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=lambda: {"late": [], "rejected": []})
    stops: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, history: Sequence[Event], passes_time: bool, unders: Sequence[Under]) -> Chain:
        """Return a chain that nothing has passed."""
        ways = {(age, INPUT): Way([], in_input=True) for age in range(len(unders))}
        moved = [Moved(event, source_of(event), turn) for turn, event in enumerate(history)]
        for each, age in along(moved, range(len(unders))):
            ways[age, INPUT].moved.append(each)
        return cls(unders, passes_time, ways, given_values(history))

    def play_all(self, play: Play) -> None:
        """Let the history through all steps. `play` returns the trace of an operator that takes some events."""
        for age, under in enumerate(self.unders):
            for key in under.nodes:
                self._way(age, key, play)
        for life in self.lives.values():
            self.takers.update(life.of_input - life.untaken)

    def _way(self, age: int, key: Any, play: Play) -> Way:
        """Return what leaves the step under one of the configurations, after what it reads has passed."""
        if (age, key) not in self.ways:
            node = self.unders[age].nodes[key]
            if isinstance(node.does, Passing):
                begins = not self._goes_on(age, node)
                self.ways[age, key] = self._passed_by(node.does, self._merged(age, node, play), begins)
            else:
                self.ways[age, key] = self._operate(age, node, node.does, play)
        return self.ways[age, key]

    def _merged(self, age: int, node: Node, play: Play) -> Way:
        """Return what the step reads: what one event of the history causes is in the order of the steps before it.

        With `time: records`, time marks end where ways meet, as they do at a step that holds no state.
        """
        ways = [self._way(age, key, play) for key in node.reads]
        if len(ways) == 1:
            return ways[0]
        for way in (way for way in ways if way.in_input):
            self.takers.update(moved.source for moved in way.moved if is_record(moved.event))
        every = sorted((moved for way in ways for moved in self._on_way(way)), key=lambda moved: moved.turn)
        whole = [moved for moved in every if isinstance(moved.event, Row)]
        once = {moved.turn: moved for moved in every if not isinstance(moved.event, Row)}
        before = [moved for moved in once.values() if isinstance(moved.event, Change | Clock)]
        behind = [moved for moved in once.values() if not isinstance(moved.event, Change | Clock)]
        together = sorted([*before, *whole, *behind], key=lambda moved: moved.turn)
        return Way(together, False, ways[0].windowed)

    def _goes_on(self, age: int, node: Node) -> bool:
        """Return whether the step goes on with the run of the step before it."""
        nodes = self.unders[age].nodes
        return any(nodes[key].name == node.name for key in node.reads if key in nodes)

    def _passed_by(self, passing: Passing, before: Way, begins: bool) -> Way:
        """Return the way behind a step that holds no state. With `time: records`, time marks end there.

        `begins`: a run begins with the step. A row that is refused in a run is shown as it came to the run.
        """
        way = list[Moved]()
        for moved in before.moved:
            row = moved.event
            if not isinstance(row, Row) or row.time_only:
                way.append(moved)
                continue
            moved = moved._replace(arrived=row if begins else moved.arrived)
            if (reason := passing.refusal(row)) is not None:
                refused = columns_of(moved.arrived) | {"cause": reason, "lateness": None, "bound": None}
                self._note("rejected", moved.turn, refused, passing.name, moved.source, before)
                continue
            values = passing.values(row)
            way += passed(moved, values)
            if passing.multiplies and before.in_input and values:
                self.takers.update([moved.source])
        behind = replace(before, in_input=before.in_input and not passing.multiplies, moved=way)
        return replace(behind, moved=self._on_way(behind))

    def _on_way(self, way: Way) -> list[Moved]:
        """Return what goes on: time marks do not with `time: records`."""
        return [moved for moved in way.moved if self.passes_time or not is_mark(moved.event)]

    def _operate(self, age: int, node: Node, does: Holder, play: Play) -> Way:
        """Let an operator take its way under one of the configurations, and return the way behind it."""
        stand, which = self.stands.get(node.name, Stand()), (node.name, does.life)
        if which not in self.lives:
            begun = Trace(stream_time=stand.stream_time)
            self.lives[which] = Life(does.config, stand.received, [*_advanced_to(stand.stream_time)], begun)
        life = self.lives[which]
        way = self._taken(age, node, does, life, play)
        self.times[age, node.name] = life.trace.stream_time
        self.stands[node.name] = life.own_stand() or stand
        return way

    def _taken(self, age: int, node: Node, does: Holder, life: Life, play: Play) -> Way:
        """Let an operator take its way, and return the way behind it."""
        before, behind = self._merged(age, node, play), list[Moved]()
        hold = does.hold if self.passes_time else None
        for moved in before.moved:
            then = list[Advance]()
            if isinstance(moved.event, Change | Clock):
                behind.append(moved)  # counts for what it causes, too
            if isinstance(moved.event, Change):
                then = self._time_of_the_first(age, node.name, life, play)
            seen = life.take(self._as_taken(moved, does, life, before), play, before.in_input, then)
            if life.trace.stopped_at is not None:
                self.stops.append(moved.turn)
            again = life.repeats_mark(moved.event)
            behind += made(seen, life.trace, moved, None if life.owes else hold, again)
            if isinstance(moved.event, Flush | Table):
                behind.append(Moved(moved.event, SOURCELESS, moved.turn))
            for name, rows in zip(self.refused, life.refused(seen), strict=True):
                for row in rows:
                    source = life.sources[row["offset"]]
                    life.untaken.add(source)
                    self._note(name, moved.turn, row, node.shown, source, before)
        return Way(behind, windowed=does.windows or before.windowed)

    def _as_taken(self, moved: Moved, does: Holder, life: Life, before: Way) -> Moved:
        """Return the event as the operator takes it.

        A change is that of its own configuration, an advance comes to the same time as in the first operator, and what
        is no record of the input has its arrival number.
        """
        event = moved.event
        if isinstance(event, Change):
            event = event._replace(config=does.config)
        elif isinstance(event, Advance):
            now = max(0, life.trace.stream_time)
            event = Advance(max(0, self.advanced.setdefault(moved.turn, now + event.by_ms) - now))
        elif isinstance(event, Row) and not before.in_input:
            event = event._replace(offset=life.received)
        return moved._replace(event=event)

    def _time_of_the_first(self, age: int, name: str, life: Life, play: Play) -> list[Advance]:
        """Return the advance of a step that becomes the first one to the time of the one that was.

        A step that is no longer the first gives that time back. While nothing was read, the order may change as well:
        then neither has a time.
        """
        was, now = (under.first() for under in self.unders[age - 1 : age + 1])
        if name != now:
            life.give_back(play)
        if name != now or name == was:
            return []
        return list(_advanced_to(self.times[age - 1, was], life.trace.stream_time))

    def _note(self, name: str, turn: int, row: dict[str, Any], step: str, source: int, before: Way) -> None:
        """Note that a step refused a row."""
        given = {"value": self.given[source]} if before.in_input else {}
        topic = None if before.in_input else f"step:{step}"
        self.refused[name].append((turn, as_given(row) | given | {"step": step, "source": source, "topic": topic}))

    def trace(self) -> Trace:
        """Return what has become visible; only the records of the input that no branch took are still refused ones."""
        trace, last = Trace(emissions=self._emissions()), self.unders[-1]
        trace.late, trace.rejected = (
            [row for _, row in sorted(self.refused[name], key=lambda each: each[0])] for name in ("late", "rejected")
        )
        refused = set[int]()
        for row in (*trace.late, *trace.rejected):
            row["topic"] = row["topic"] or (f"step:{row['step']}" if self.takers[row["source"]] else None)
            refused |= {row["source"]} if row["topic"] is None else set()
        trace.applied = len(self.given) - len(refused)
        for node in last.nodes.values():
            if isinstance(node.does, Holder):
                held = self.lives[node.name, node.does.life].trace
                trace.held += [as_given(row) | {"step": node.name} for row in held.held]
                trace.held_bytes += held.held_bytes - (sum(map(_bytes_not_given, held.held)) if node.does.joins else 0)
        trace.stream_time = self.times[len(self.unders) - 1, last.first()]
        return trace

    def standing(self) -> list[tuple[str, Stand]]:
        """Return where the steps stand, in their order."""
        nodes = self.unders[-1].nodes.values()
        holders = [(node.name, node.does.life) for node in nodes if isinstance(node.does, Holder)]
        return [(name, self.lives[name, life].stands()) for name, life in holders]

    def _emissions(self) -> list[dict[str, Any]]:
        return [row for age, under in enumerate(self.unders) for row in self._emitted(age, under)]

    def _emitted(self, age: int, under: Under) -> Iterator[dict[str, Any]]:
        """Yield what is emitted under one of the configurations."""
        joins = {key for key, node in under.nodes.items() if isinstance(node.does, Holder) and node.does.joins}
        windowed = any(self.ways[age, key].windowed for key in under.emitting)
        blank = dict.fromkeys([*(WINDOW if windowed else ()), *(VERSION if joins & under.emitting.keys() else ())])
        for key, name in under.emitting.items():
            hidden = () if key in joins else VERSION
            for moved in (moved for moved in self.ways[age, key].moved if is_record(moved.event)):
                row = as_given(moved.event.row)  # type: ignore[union-attr]
                shown = {name: value for name, value in row.items() if name not in hidden}
                yield blank | shown | {"step": name, "source": moved.source}


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


def made(before: Trace, after: Trace, moved: Moved, hold: int | None, again: bool) -> Iterator[Moved]:
    """Yield what an event made leave an operator, with its marks, unless `hold` is None: it passes none on.

    `again`: the last mark is repeated.
    """
    source = moved.source if isinstance(moved.event, Row) else SOURCELESS
    marks = after.marks[len(before.marks) :]
    if again and after.marks:
        marks = [*marks, (len(after.emissions), after.marks[-1][1])]
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


def given_values(history: Sequence[Event]) -> dict[int, bytes | None]:
    """Return the values of the records, by offset."""
    return {event.offset: event.value for event in history if isinstance(event, Row) and not event.time_only}


def source_of(event: Event) -> int:
    return event.offset if isinstance(event, Row) else SOURCELESS


def is_record(event: Event) -> bool:
    return isinstance(event, Row) and not event.time_only


def is_mark(event: Event) -> bool:
    return isinstance(event, Row) and event.time_only


def columns_of(event: Event | None) -> dict[str, Any]:
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


def _advanced_to(stream_time: int, now: int = NO_STREAM_TIME) -> Iterator[Advance]:
    """Yield the advance that brings a step which holds nothing to that time, unless time would go back."""
    if stream_time > now:
        yield Advance(stream_time - max(0, now))
