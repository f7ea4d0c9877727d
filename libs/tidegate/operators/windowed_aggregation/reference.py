"""A slow reference implementation of windows as in KIP-328, for tests only.

It has one list of windows, which it searches from end to end: a record updates the windows that are open, and results
are emitted when they are due.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.contracts.event_time import MAX_TIME, MAX_TIMESTAMP, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.windowed_aggregation.config import (
    Entry,
    Hopping,
    JsonField,
    Session,
    Tumbling,
    WindowedAggregationRules,
    least_retention,
)


@dataclass
class Window:
    """A window of a key, with the numbers of each of its records, by aggregate."""

    key: bytes
    start: int
    end: int
    arrival: int
    numbers: list[dict[str, Any]]
    phase: str = "emitted"
    timestamp: int = 0
    offset: int = 0


@dataclass
class Reference:
    """One partition.

    `emissions`: (copy of the window at that time, cause). `late`: (row, lateness, bound). `rejected`: (row, reason).
    """

    config: WindowedAggregationRules
    stream_time: int = -1
    windows: list[Window] = field(default_factory=list)
    emissions: list[tuple[Window, str]] = field(default_factory=list)
    late: list[tuple[Row, int, int]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    applied: int = 0
    stopped_at: int | None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """Process a record: apply it, or list it as late or rejected, or stop before it (`stopped_at`: its offset)."""
        numbers, missing = self._numbers(row)
        if reason := self._rejection(row, clock_ms, missing):
            self.rejected.append((row, reason))
            return
        before = copy.deepcopy((self.windows, self.emissions)), self.stream_time
        self.stream_time = max(self.stream_time, row.timestamp)
        joined = self._add_to_session(row) if isinstance(self.config.window, Session) else self._add_to_spans(row)
        for window in joined:
            self._take(window, row, numbers)
        self._pass_time("on_time", "window_close")
        bounds = self.config.buffer
        if not joined:
            (self.windows, self.emissions), self.stream_time = before
            self.late.append((row, max(0, self.stream_time - row.timestamp), self.bound(self.stream_time)))
        elif self._too_long(joined[0]) or (
            bounds and bounds.when_full == "shut_down" and self._full(bounds.max_keys, bounds.max_bytes)
        ):
            (self.windows, self.emissions), self.stream_time = before
            self.stopped_at = row.offset
        else:
            self.applied += 1

    def settle(self, clock_ms: int) -> None:
        """Emit, close and expire what is due under a new configuration."""
        self._pass_time("on_time", "window_close")

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`; emit what is due with cause `idle`."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self._pass_time("idle", "idle")

    def flush(self) -> None:
        """Emit every pending result with cause `flush`; with final results, close these windows."""
        for window in sorted(self.windows, key=lambda window: (window.end, window.arrival, window.start)):
            if window.phase == "pending":
                self._tell(window, "flush")
                window.phase = "closed" if self.config.emit == "final" else "emitted"

    def reached(self, window: Window, _cause: str) -> int | None:
        """Return the last stream time before the one at which the window's result is due; None without such a time."""
        shape = self.config.window
        if self.config.emit not in ("on_time", "final") or not isinstance(shape, Tumbling | Hopping | Session):
            return None
        ended = window.end + shape.session + 1 if isinstance(shape, Session) else window.end
        return ended + (shape.grace if self.config.emit == "final" else 0) - 1

    def bound(self, stream_time: int) -> int:
        """Return the smallest timestamp that is not late at that stream time, whatever windows exist."""
        window = self.config.window
        if isinstance(window, Session):
            return stream_time - window.grace - window.session
        assert isinstance(window, Tumbling | Hopping)
        size = window.tumbling if isinstance(window, Tumbling) else window.hopping
        advance = getattr(window, "advance", size)
        return max(0, ((stream_time - window.grace - size) // advance + 1) * advance)

    def _add_to_spans(self, row: Row) -> list[Window]:
        window = self.config.window
        closed_until = self.stream_time - getattr(window, "grace", 0)
        size = window.tumbling if isinstance(window, Tumbling) else getattr(window, "hopping", MAX_TIMESTAMP)
        advance = getattr(window, "advance", size)
        last = row.timestamp // advance * advance
        starts = list(range(last, max(-1, row.timestamp - size), -advance))[::-1]
        bounds = [(start, start + size) for start in starts if start + size > closed_until]
        found = [self._find(row, start, end) or self._open(row, start, end, []) for start, end in bounds]
        return [window for window in found if window.phase != "closed"]

    def _add_to_session(self, row: Row) -> list[Window]:
        assert isinstance(self.config.window, Session)
        gap, late_until = self.config.window.session, self.bound(self.stream_time)
        touched = [w for w in self.windows if w.key == row.key and w.start - gap <= row.timestamp <= w.end + gap]
        near = sorted((w for w in touched if w.phase != "closed"), key=lambda window: window.end)
        start, end = min([row.timestamp, *(w.start for w in near)]), max([row.timestamp, *(w.end for w in near)])
        closed_early = any(w.phase == "closed" and w.end >= late_until for w in touched)
        if end < late_until or (closed_early and not near):
            return []
        old = next((w for w in near if (w.start, w.end) == (start, end)), None)
        for window in near if start < end or not self._tells_at_once(near, end) else []:
            if window.phase == "emitted":
                self._tell(window, "merged")
        self.windows = [window for window in self.windows if window is old or window not in near]
        return [old or self._merged(near, row, start, end)]

    def _merged(self, near: list[Window], row: Row, start: int, end: int) -> Window:
        return self._open(row, start, end, [numbers for window in near for numbers in window.numbers])

    def _tells_at_once(self, _near: list[Window], end: int) -> bool:
        """Return whether the next result of a session with that end follows at once."""
        assert isinstance(self.config.window, Session)
        ended = end + self.config.window.session < self.stream_time
        return self.config.emit == "updates" or (self.config.emit == "on_time" and ended)

    def _too_long(self, window: Window) -> bool:
        longest = getattr(self.config.window, "max_length", None)
        return longest is not None and window.end - window.start > longest

    def _find(self, row: Row, start: int, end: int) -> Window | None:
        return next((w for w in self.windows if (w.key, w.start, w.end) == (row.key, start, end)), None)

    def _open(self, row: Row, start: int, end: int, numbers: list[dict[str, Any]]) -> Window:
        assert row.key is not None
        self.windows.append(Window(row.key, start, end, row.offset, numbers))
        return self.windows[-1]

    def _take(self, window: Window, row: Row, numbers: dict[str, Any]) -> None:
        window.numbers.append(numbers)
        window.offset = row.offset
        session = isinstance(self.config.window, Session)
        window.timestamp = window.end if session else max(window.timestamp, row.timestamp)
        window.phase = "pending"
        if self.config.emit == "updates":
            self._tell(window, "update")

    def _tell(self, window: Window, cause: str) -> None:
        window.phase = "emitted"
        self.emissions.append((copy.deepcopy(window), cause))

    def _pass_time(self, on_time: str, on_close: str) -> None:
        while due := [window for window in self.windows if self._next(window) <= self.stream_time]:
            window = min(due, key=lambda found: (self._next(found), found.arrival, found.start))
            if self._expires_next(window):
                self.windows.remove(window)
            elif self.config.emit == "on_time" and window.phase == "pending":
                self._tell(window, on_time)
            else:
                if self.config.emit == "final":
                    self._tell(window, on_close)
                window.phase = "closed"

    def _expires_next(self, window: Window) -> bool:
        if isinstance(self.config.window, Session) and self.config.emit != "final":
            return window.phase == "emitted" or self.config.emit is None
        return window.phase == "closed"

    def _next(self, window: Window) -> float:
        """Return the stream time of the window's next event."""
        shape, retention = self.config.window, self.config.retention
        if not isinstance(shape, Tumbling | Hopping | Session):
            return float("inf")
        retention = least_retention(shape) if retention is None else retention
        if self._expires_next(window):
            return window.end + retention + 1 if isinstance(shape, Session) else window.start + retention
        ended = window.end + shape.session + 1 if isinstance(shape, Session) else window.end
        return ended if self.config.emit == "on_time" and window.phase == "pending" else ended + shape.grace

    def _full(self, max_keys: int | None, max_bytes: int | None) -> bool:
        held = [window for window in self.windows if window.phase != "closed"]
        too_many = max_keys is not None and len(held) > max_keys
        return too_many or (max_bytes is not None and sum(map(self.size, held)) > max_bytes)

    def size(self, window: Window) -> int:
        """Return the bytes of a window: its key, its bounds and the words of its aggregates."""
        words = {"count": 1, "sum": 3, "min": 3, "max": 3, "avg": 4}
        return len(window.key) + 16 + 8 * sum(words[entry.kind] for entry in self.config.aggregate.entries)

    def _rejection(self, row: Row, clock_ms: int, missing: str) -> str:
        if row.key is None:
            return "null key"
        if row.timestamp == NO_TIMESTAMP or missing:
            return "no timestamp: null" if row.timestamp == NO_TIMESTAMP else missing
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        ahead = self.config.max_ahead
        return "too far ahead" if ahead is not None and row.timestamp > clock_ms + ahead else ""

    def _numbers(self, row: Row) -> tuple[dict[str, Any], str]:
        """Return the number for each aggregate, and the reason if one is missing."""
        found: dict[str, Any] = {}
        for entry in planned(self.config):
            if entry.kind != "count":
                number, reason = read_number(row.value, path_of(entry.source))
                if reason:
                    return {}, reason
                found[entry.name] = number
        return found, ""


def planned(config: WindowedAggregationRules) -> list[Entry]:
    """Return the aggregates of numbers: those named after a kind in the order of the kinds, then the others by name."""
    kinds = ["count", "sum", "min", "max", "avg"]
    entries = [entry for entry in config.aggregate.entries if entry.kind in kinds]
    return sorted(entries, key=lambda entry: (kinds.index(entry.name) if entry.name in kinds else 9, entry.name))


def path_of(source: object) -> tuple[str, ...]:
    """Return the names that lead to the source of an aggregate; none: it is the value itself."""
    return source.names if isinstance(source, JsonField) else ()


def read_number(value: bytes | None, path: tuple[str, ...]) -> tuple[Any, str]:
    """Return the number in that field, and the reason if there is none."""
    if value is None:
        return None, "no number: null value"
    try:
        document = read_json(value)
    except ValueError:
        return None, "no number: value is not JSON"
    if not path:
        return document, "" if _is_number(document) else "no number: value is not a number"
    if not isinstance(document, dict):
        return None, "no number: value is not a JSON object"
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return None, "no number: field is missing"
        document = document[name]
    return document, "" if _is_number(document) else "no number: field is not a number"


def as_written(results: Mapping[str, str], is_object: bool) -> bytes:
    """Return results, by their names, as JSON."""
    text = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{result}" for name, result in results.items())
    return (f"{{{text}}}" if is_object else next(iter(results.values()))).encode()


def read_json(value: bytes) -> Any:
    """Parse the value as JSON (RFC 8259) in UTF-8. Whole numbers beyond 64 bits become doubles.

    Raises ValueError for anything else.
    """
    return json.loads(value.decode(), parse_constant=_refuse, parse_int=_whole)


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _whole(digits: str) -> float:
    number = float(digits)
    return int(digits) if abs(number) <= 2**63 and -(2**63) <= int(digits) < 2**63 else number


def total(numbers: list[Any]) -> Any:
    """Return the sum: exact if all numbers are whole, else the exact sum of the whole ones plus that of the doubles."""
    wholes = sum(number for number in numbers if isinstance(number, int))
    doubles = [number for number in numbers if isinstance(number, float)]
    return float(wholes) + sum(doubles) if doubles else wholes


def average(numbers: list[Any]) -> float:
    """Return the sum divided by the count."""
    return float(total(numbers) / len(numbers))


def _is_number(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
