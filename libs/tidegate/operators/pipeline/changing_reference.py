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
    Passing,
    along,
    as_given,
    columns_of,
    given_values,
    is_mark,
    is_record,
    made,
    passed,
    source_of,
)
from tidegate.operators.testing.laws import Advance, Change, Event, Flush, Trace

Play = Callable[[OperatorConfig, Sequence[Event]], Trace]


class Life(NamedTuple):
    """A step that holds state, from its arrival to its removal; `again`: how often it had been removed before."""

    name: str
    again: int = 0


class Holder(NamedTuple):
    """A step that holds state: its configuration, and how far its marks stay behind its time (None: no marks).

    `shown`: the step whose name its refused rows have; None: itself.
    """

    config: OperatorConfig
    hold: int | None
    shown: str | None = None


class Under(NamedTuple):
    """What the chain is under one configuration.

    `passings`: the stateless steps before each step that holds state, and at None those behind the last. `holders`: the
    steps that hold state, in order. `last`: the name of the last step.
    """

    passings: dict[Life | None, list[Passing]]
    holders: dict[Life, Holder]
    last: str

    def reads_input(self, life: Life | None) -> bool:
        """Return whether the step that holds state receives records of the input."""
        return self.is_first(life) and not any(each.multiplies for each in self.passings[life])

    def is_first(self, life: Life | None) -> bool:
        """Return whether no step that holds state is before it."""
        return life == next(iter(self.holders))


class Stand(NamedTuple):
    """Where a step stands: its stream time, and how many records it has received."""

    stream_time: int = NO_STREAM_TIME
    received: int = 0


@dataclass
class ChangingChain:
    """The way of a history through the steps, and everything that becomes visible.

    `unders`: what the chain is at the beginning and after each change. `given`: the values of the input's records, by
    offset; a refused one has the value that it came with. `stood`: where each step stood when it was removed.
    `first_times`: by the turn of a change that removed the first step, that step's stream time.
    """

    way: list[Moved]
    passes_time: bool
    unders: Sequence[Under]
    given: dict[int, bytes | None]
    trace: Trace = field(default_factory=Trace)
    times: list[tuple[str, int, int]] = field(default_factory=list)
    stood: dict[str, Stand] = field(default_factory=dict)
    first_times: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, history: Sequence[Event], passes_time: bool, unders: Sequence[Under]) -> ChangingChain:
        """Return a chain without steps."""
        way = [Moved(event, source_of(event), turn) for turn, event in enumerate(history)]
        return cls(way, passes_time, unders, given_values(history))

    def lives(self) -> list[Life]:
        """Return all steps that hold state at some time, in order: new ones are behind those that were there."""
        return list(dict.fromkeys(life for under in self.unders for life in under.holders))

    def pass_by(self, before: Life | None) -> None:
        """Let the way through the stateless steps before that step."""
        self.way = [behind for moved, under in self._along() for behind in self._passed(moved, before, under)]

    def operate(self, life: Life, play: Play) -> None:
        """Let an operator take the way; what it emits and the time that it passes on are the way behind it.

        While the configuration lacks the step, everything passes by.
        """
        taken, behind, trace, begun, was = list[Event](), list[Moved](), Trace(), None, self.unders[0]
        received = records = self.stood.get(life.name, Stand()).received
        for moved, under in self._along():
            is_change = isinstance(moved.event, Change)
            if is_change and was.is_first(life):
                self.first_times[moved.turn] = trace.stream_time
            if is_change or life not in under.holders:
                behind.append(moved)
            if life not in under.holders:
                was = under
                continue
            holder, before = under.holders[life], trace
            if begun is None:
                begun, taken = holder.config, list(_advanced_to(self.stood.get(life.name, Stand()).stream_time))
            if is_change and under.is_first(life) and not was.is_first(life):
                taken += _advanced_to(self.first_times[moved.turn], play(begun, taken).stream_time)
            was = under
            event = Change(holder.config) if is_change else moved.event
            if isinstance(event, Row) and not under.reads_input(life):
                event = event._replace(offset=received)
                received += not event.time_only
            taken.append(event)
            records += is_record(event)
            trace = play(begun, taken)
            behind += made(before, trace, moved._replace(event=event), holder.hold if self.passes_time else None)
            behind += [Moved(Flush(), SOURCELESS, moved.turn)] if isinstance(event, Flush) else []
            name = holder.shown or life.name
            self._note_refused(name, before, trace, moved.source, in_input=under.reads_input(life))
        self.way = behind
        self.stood[life.name] = Stand(trace.stream_time, records)
        if life in was.holders:
            self._note_held(life.name, trace)

    def _along(self) -> Iterator[tuple[Moved, Under]]:
        """Yield the way, each event with the chain that it meets."""
        return along(self.way, self.unders)

    def _passed(self, moved: Moved, before: Life | None, under: Under) -> list[Moved]:
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
        way = passed(moved, step.values(event))
        return [each for each in way if self.passes_time or not is_mark(each.event)]

    def _note_refused(self, name: str, before: Trace, after: Trace, source: int, *, in_input: bool) -> None:
        """Note what the step refused between the traces."""
        self.trace.late += [as_given(row) | self._tag(name, source, in_input) for row in after.late[len(before.late) :]]
        refused = after.rejected[len(before.rejected) :]
        self.trace.rejected += [as_given(row) | self._tag(name, source, in_input) for row in refused]

    def _note_held(self, name: str, trace: Trace) -> None:
        """Note what a step holds that is there to the end."""
        self.trace.held += [as_given(row) | {"step": name} for row in trace.held]
        self.trace.held_bytes += trace.held_bytes
        self.times.append((name, *self.stood[name]))

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


def _advanced_to(stream_time: int, now: int = NO_STREAM_TIME) -> Iterator[Advance]:
    """Yield the advance that brings a step which holds nothing to that time, unless time would go back."""
    if stream_time > now:
        yield Advance(stream_time - max(0, now))
