"""Reference implementation of pipelines, for tests only: the references of the steps, one behind the other.

Each step plays its whole history before the next one begins. What becomes of each event is found by playing the history
up to it once more, so this is slow, and knows nothing of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.testing.laws import Event, Flush, Trace

WINDOW = ("window_start", "window_end")
SOURCELESS = -1


class Moved(NamedTuple):
    """An event on its way, and the offset of the input record that caused it."""

    event: Event
    source: int


Play = Callable[[Sequence[Event]], Trace]
Kept = Callable[[Row], bool]


@dataclass
class Chain:
    """The way of a history through the steps, and everything that becomes visible."""

    way: list[Moved]
    passes_time: bool
    in_input: bool = True
    trace: Trace = field(default_factory=Trace)
    times: list[tuple[str, int, int]] = field(default_factory=list)
    last: str = ""

    @classmethod
    def of(cls, history: Sequence[Event], passes_time: bool) -> Chain:
        """Return a chain without steps."""
        return cls([Moved(event, _source(event)) for event in history], passes_time)

    def filter(self, name: str, kept: Kept) -> None:
        """Let only some records go on; the others pass their time on."""
        self.last = name
        dropped = [moved._replace(event=_without_record(moved.event, kept)) for moved in self.way]
        self.way = [moved for moved in dropped if self.passes_time or not _is_mark(moved.event)]

    def require(self, name: str, kept: Kept, reason: str) -> None:
        """Reject some records."""
        self.last = name
        refused = [moved for moved in self.way if _is_record(moved.event) and not kept(moved.event)]  # type: ignore[arg-type]
        self.trace.rejected += [
            _as_given(_columns(moved.event))
            | {"cause": reason, "lateness": None, "bound": None}
            | self._of(name, moved.source)
            for moved in refused
        ]
        self.way = [moved for moved in self.way if moved not in refused]

    def operate(self, name: str, play: Play, hold: int | None) -> None:
        """Let an operator take the way; what it emits and the time that it passes on are the way behind it."""
        self.last = name
        arriving = self.way if self.in_input else list(_numbered(self.way))
        whole = play([moved.event for moved in arriving])
        sources = {moved.event.offset: moved.source for moved in arriving if _is_record(moved.event)}  # type: ignore[union-attr]
        for rows, due in ((self.trace.late, whole.late), (self.trace.rejected, whole.rejected)):
            rows += [_as_given(row) | self._of(name, sources[row["offset"]]) for row in due]
        self.trace.held += [_as_given(row) | {"step": name} for row in whole.held]
        self.trace.held_bytes += whole.held_bytes
        self.times.append((name, whole.stream_time, len(sources)))
        self.way = list(_behind(arriving, play, passes=self.passes_time and hold is not None))
        self.in_input = False

    def _of(self, name: str, source: int) -> dict[str, Any]:
        return {"step": name, "source": source, "topic": None if self.in_input else f"step:{name}"}

    def emissions(self) -> list[dict[str, Any]]:
        """Return what leaves the last step."""
        records = [moved for moved in self.way if _is_record(moved.event)]
        return [self._emission(moved) for moved in records]

    def _emission(self, moved: Moved) -> dict[str, Any]:
        assert isinstance(moved.event, Emitted)
        return _as_given(moved.event.row) | {"step": self.last, "source": moved.source}


class Emitted(Row):
    """A row that a step has emitted, with all of its columns."""

    row: dict[str, Any]


def _behind(arriving: Sequence[Moved], play: Play, *, passes: bool) -> Iterator[Moved]:
    """Yield what leaves an operator after each event, then the mark, then the flush itself."""
    emitted = marked = 0
    for count, moved in enumerate(arriving, 1):
        trace = play([each.event for each in arriving[:count]])
        source = SOURCELESS if isinstance(moved.event, Flush) else moved.source
        for row in trace.emissions[emitted:]:
            yield Moved(_emitted(row), source)
        for _, time in trace.marks[marked:] if passes else ():
            yield Moved(Row(None, None, time, 0, time_only=True), source)
        if isinstance(moved.event, Flush):
            yield Moved(Flush(), SOURCELESS)
        emitted, marked = len(trace.emissions), len(trace.marks)


def _emitted(row: dict[str, Any]) -> Emitted:
    headers = row["headers"] or b""
    if "window_start" in row:
        names = (HEADER_WINDOW_START, HEADER_WINDOW_END)
        headers = encode_headers((name.encode(), b"%d" % row[of]) for name, of in zip(names, WINDOW, strict=True))
    found = Emitted(row["key"], row["value"], row["timestamp"], row["offset"], headers)
    found.row = row
    return found


def _as_given(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without the headers that tell the next reference its window: within a pipeline it is a column."""
    return row | {"headers": None} if HEADER_WINDOW_START.encode() in (row["headers"] or b"") else row


def _numbered(way: Sequence[Moved]) -> Iterator[Moved]:
    """Yield the way with arrival numbers as offsets."""
    received = 0
    for moved in way:
        if isinstance(moved.event, Row):
            yield Moved(moved.event._replace(offset=received), moved.source)
            received += not moved.event.time_only
        else:
            yield moved


def _source(event: Event) -> int:
    return event.offset if isinstance(event, Row) else SOURCELESS


def _is_record(event: Event) -> bool:
    return isinstance(event, Row) and not event.time_only


def _is_mark(event: Event) -> bool:
    return isinstance(event, Row) and event.time_only


def _without_record(event: Event, kept: Kept) -> Event:
    if isinstance(event, Row) and not event.time_only and not kept(event):
        return event._replace(time_only=True)
    return event


def _columns(event: Event) -> dict[str, Any]:
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
