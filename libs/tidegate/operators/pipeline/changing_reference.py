"""Reference implementation of a chain of steps that changes, for tests only; `reference` has the parts of both.

A change reaches each step before what it makes leave the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.reference import (
    SOURCELESS,
    Emitted,
    Moved,
    as_given,
    columns_of,
    given_values,
    is_mark,
    is_record,
    source_of,
    valued,
    with_marks,
)
from tidegate.operators.testing.laws import Change, Event, Flush, Trace

Play = Callable[[OperatorConfig, Sequence[Event]], Trace]


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
    """A step that holds state: its configuration, and how far its marks stay behind its time (None: no marks)."""

    config: OperatorConfig
    hold: int | None


class Under(NamedTuple):
    """What the chain is under one configuration.

    `passings`: the stateless steps before each step that holds state, and at None those behind the last. `holders`: the
    steps that hold state, in order. `last`: the name of the last step.
    """

    passings: dict[str | None, list[Passing]]
    holders: dict[str, Holder]
    last: str

    def reads_input(self, name: str | None) -> bool:
        """Return whether the step that holds state receives records of the input."""
        return self.is_first(name) and not any(each.multiplies for each in self.passings[name])

    def is_first(self, name: str | None) -> bool:
        """Return whether no step that holds state is before it."""
        return name == next(iter(self.holders))


@dataclass
class ChangingChain:
    """The way of a history through the steps, and everything that becomes visible.

    `now`: what the chain is at the beginning. `under`: what it is under the configuration that a change brings.
    `given`: the values of the input's records, by offset; a refused one has the value that it came with.
    """

    way: list[Moved]
    passes_time: bool
    now: Under
    under: Callable[[Any], Under]
    given: dict[int, bytes | None]
    trace: Trace = field(default_factory=Trace)
    times: list[tuple[str, int, int]] = field(default_factory=list)

    @classmethod
    def of(
        cls, history: Sequence[Event], passes_time: bool, now: Under, under: Callable[[Any], Under]
    ) -> ChangingChain:
        """Return a chain without steps."""
        way = [Moved(event, source_of(event), turn) for turn, event in enumerate(history)]
        return cls(way, passes_time, now, under, given_values(history))

    def pass_by(self, before: str | None) -> None:
        """Let the way through the stateless steps before that step."""
        self.way = [behind for moved, under in self._along() for behind in self._passed(moved, before, under)]

    def operate(self, name: str, play: Play) -> None:
        """Let an operator take the way; what it emits and the time that it passes on are the way behind it.

        While the configuration lacks the step, everything passes by.
        """
        taken, behind, trace, begun = list[Event](), list[Moved](), Trace(), None
        received, records, under = 0, 0, self.now
        for moved, under in self._along():
            is_change = isinstance(moved.event, Change)
            if is_change or name not in under.holders:
                behind.append(moved)
            if name not in under.holders:
                continue
            holder = under.holders[name]
            if begun is None:
                begun = holder.config
                if is_change:
                    continue
            event = Change(holder.config) if is_change else moved.event
            if isinstance(event, Row) and not under.reads_input(name):
                event = event._replace(offset=received)
                received += not event.time_only
            taken.append(event)
            records += is_record(event)
            before, trace = trace, play(begun, taken)
            behind += _new(before, trace, moved._replace(event=event), holder.hold if self.passes_time else None)
            self._note_refused(name, before, trace, moved.source, in_input=under.reads_input(name))
        self.way = behind
        if name in under.holders:
            self._note_held(name, trace, trace.stream_time if taken else NO_STREAM_TIME, records)

    def _along(self) -> Iterator[tuple[Moved, Under]]:
        """Yield the way, each event with the chain that it meets."""
        under = self.now
        for moved in self.way:
            if isinstance(moved.event, Change):
                under = self.under(moved.event.config)
            yield moved, under

    def _passed(self, moved: Moved, before: str | None, under: Under) -> list[Moved]:
        """Return what the event becomes behind the stateless steps."""
        way, in_input = [moved], under.is_first(before)
        for step in under.passings.get(before, ()):
            way = [behind for each in way for behind in self._made(each, step, in_input)]
            in_input = in_input and not step.multiplies
        return way

    def _made(self, moved: Moved, step: Passing, in_input: bool) -> list[Moved]:
        """Return what the event becomes behind a stateless step. With `time: records`, time marks end there."""
        event = moved.event
        if not isinstance(event, Row) or event.time_only:
            return [] if is_mark(event) and not self.passes_time else [moved]
        if (reason := step.refusal(event)) is not None:
            refused = {"cause": reason, "lateness": None, "bound": None}
            self.trace.rejected.append(
                as_given(columns_of(event)) | refused | self._tag(step.name, moved.source, in_input)
            )
            return []
        made = [moved._replace(event=valued(event, value)) for value in step.values(event)]
        if made or event.key is None or not self.passes_time:
            return made
        return [moved._replace(event=event._replace(time_only=True))]

    def _note_refused(self, name: str, before: Trace, after: Trace, source: int, *, in_input: bool) -> None:
        """Note what the step refused between the traces."""
        self.trace.late += [as_given(row) | self._tag(name, source, in_input) for row in after.late[len(before.late) :]]
        refused = after.rejected[len(before.rejected) :]
        self.trace.rejected += [as_given(row) | self._tag(name, source, in_input) for row in refused]

    def _note_held(self, name: str, trace: Trace, stream_time: int, received: int) -> None:
        """Note what a step holds that is there to the end."""
        self.trace.held += [as_given(row) | {"step": name} for row in trace.held]
        self.trace.held_bytes += trace.held_bytes
        self.times.append((name, stream_time, received))

    def _tag(self, name: str, source: int, in_input: bool) -> dict[str, Any]:
        given = {"value": self.given[source]} if in_input else {}
        return given | {"step": name, "source": source, "topic": None if in_input else f"step:{name}"}

    def emissions(self) -> list[dict[str, Any]]:
        """Return what leaves the last step."""
        return [
            as_given(moved.event.row) | {"step": under.last, "source": moved.source}
            for moved, under in self._along()
            if isinstance(moved.event, Emitted) and not moved.event.time_only
        ]


def _new(before: Trace, after: Trace, moved: Moved, hold: int | None) -> Iterator[Moved]:
    """Yield what an event made leave an operator with its marks, then a flush itself.

    A change repeats the mark, which a new step has not received yet.
    """
    source = SOURCELESS if isinstance(moved.event, Flush | Change) else moved.source
    marks = after.marks[len(before.marks) :]
    if isinstance(moved.event, Change) and hold is not None and after.stream_time - hold > NO_STREAM_TIME:
        marks = [*marks, (len(after.emissions), after.stream_time - hold)]
    for event in with_marks(after.emissions, len(before.emissions), marks if hold is not None else ()):
        yield Moved(event, source, moved.turn)
    if isinstance(moved.event, Flush):
        yield Moved(Flush(), SOURCELESS, moved.turn)
