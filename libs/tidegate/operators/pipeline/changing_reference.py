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
    Kept,
    Moved,
    as_given,
    columns_of,
    is_mark,
    is_record,
    source_of,
    with_marks,
)
from tidegate.operators.testing.laws import Change, Event, Flush, Trace

Play = Callable[[OperatorConfig, Sequence[Event]], Trace]


class Sieve(NamedTuple):
    """A stateless step: the name of its run, the rows that it keeps, and why others are rejected (None: dropped)."""

    name: str
    kept: Kept
    reason: str | None = None


class Holder(NamedTuple):
    """A step that holds state: its configuration, and how far its marks stay behind its time (None: no marks)."""

    config: OperatorConfig
    hold: int | None


class Under(NamedTuple):
    """What the chain is under one configuration.

    `sieves`: the stateless steps before each step that holds state, and at None those behind the last. `holders`: the
    steps that hold state, in order. `last`: the name of the last step.
    """

    sieves: dict[str | None, list[Sieve]]
    holders: dict[str, Holder]
    last: str

    def is_first(self, name: str | None) -> bool:
        """Return whether the step reads records of the input."""
        return name == next(iter(self.holders))


@dataclass
class ChangingChain:
    """The way of a history through the steps, and everything that becomes visible.

    `now`: what the chain is at the beginning. `under`: what it is under the configuration that a change brings.
    """

    way: list[Moved]
    passes_time: bool
    now: Under
    under: Callable[[Any], Under]
    trace: Trace = field(default_factory=Trace)
    times: list[tuple[str, int, int]] = field(default_factory=list)

    def sift(self, before: str | None) -> None:
        """Let the way through the stateless steps before that step."""
        sifted = ((self._sifted(moved, before, under), under) for moved, under in self._along())
        self.way = [moved for moved, _ in sifted if moved is not None]

    def operate(self, name: str, play: Play) -> None:
        """Let an operator take the way; what it emits and the time that it passes on are the way behind it.

        While the configuration lacks the step, everything passes by.
        """
        taken, behind, trace, begun = list[Moved](), list[Moved](), Trace(), None
        received, under = 0, self.now
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
            if isinstance(event, Row) and not under.is_first(name):
                event = event._replace(offset=received)
                received += not event.time_only
            taken.append(moved._replace(event=event))
            before, trace = trace, play(begun, [each.event for each in taken])
            behind += _new(before, trace, taken[-1], holder.hold if self.passes_time else None)
        self.way = behind
        self._note(name, trace, taken, under)

    def _along(self) -> Iterator[tuple[Moved, Under]]:
        """Yield the way, each event with the chain that it meets."""
        under = self.now
        for moved in self.way:
            if isinstance(moved.event, Change):
                under = self.under(moved.event.config)
            yield moved, under

    def _sifted(self, moved: Moved, before: str | None, under: Under) -> Moved | None:
        """Return what is left of the event behind the stateless steps; None if nothing goes on."""
        for sieve in under.sieves.get(before, ()):
            event = moved.event
            if isinstance(event, Row) and not event.time_only and not sieve.kept(event):
                if sieve.reason is not None:
                    refused = {"cause": sieve.reason, "lateness": None, "bound": None}
                    tag = _tag(sieve.name, moved.source, in_input=under.is_first(before))
                    self.trace.rejected.append(as_given(columns_of(event)) | refused | tag)
                    return None
                if event.key is None:
                    return None
                moved = moved._replace(event=event._replace(time_only=True))
            if is_mark(moved.event) and not self.passes_time:
                return None
        return moved

    def _note(self, name: str, trace: Trace, taken: Sequence[Moved], under: Under) -> None:
        """Note what the step refused, and what it holds if it is there to the end."""
        sources = {moved.event.offset: moved.source for moved in taken if is_record(moved.event)}  # type: ignore[union-attr]
        for rows, due in ((self.trace.late, trace.late), (self.trace.rejected, trace.rejected)):
            rows += [
                as_given(row) | _tag(name, sources[row["offset"]], in_input=self.now.is_first(name)) for row in due
            ]
        if name in under.holders:
            self.trace.held += [as_given(row) | {"step": name} for row in trace.held]
            self.trace.held_bytes += trace.held_bytes
            self.times.append((name, trace.stream_time if taken else NO_STREAM_TIME, len(sources)))

    def emissions(self) -> list[dict[str, Any]]:
        """Return what leaves the last step."""
        return [
            as_given(moved.event.row) | {"step": under.last, "source": moved.source}
            for moved, under in self._along()
            if isinstance(moved.event, Emitted) and not moved.event.time_only
        ]


def way_of(history: Sequence[Event]) -> list[Moved]:
    """Return the history as the way before the first step."""
    return [Moved(event, source_of(event), turn) for turn, event in enumerate(history)]


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


def _tag(name: str, source: int, *, in_input: bool) -> dict[str, Any]:
    return {"step": name, "source": source, "topic": None if in_input else f"step:{name}"}
