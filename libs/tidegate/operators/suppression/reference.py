"""Suppression as KIP-328's page words it: insert or update, then evict the oldest while a bound is violated.

The slow oracle, for tests only: one dict, searched from end to end. May import: contracts, kernels.record_headers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.event_time import MAX_TIME, MAX_TIMESTAMP, MAX_WINDOW_END, NO_TIMESTAMP
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_headers import decode_headers, header_value
from tidegate.operators.suppression.config import SuppressionRules, TimeLimit

Window = tuple[int, int] | None


class Slot(NamedTuple):
    """A held key: its newest record, and where it stands in the order. A closed window has its key alone, and an
    arrival < 0."""

    place: int
    arrival: int
    row: Row
    window: Window = None

    @property
    def closed(self) -> bool:
        """True for a window whose final result is out."""
        return self.arrival < 0

    def as_closed(self) -> Slot:
        """The window, remembered after its result has left."""
        return self._replace(arrival=~self.arrival, row=self.row._replace(value=None, headers=b""))


@dataclass
class Reference:
    """One partition. `emissions` are (slot, cause), `late` (row, lateness, bound), `rejected` (row, reason)."""

    config: SuppressionRules
    stream_time: int = -1
    held: dict[tuple[bytes, Window], Slot] = field(default_factory=dict)
    emissions: list[tuple[Slot, str]] = field(default_factory=list)
    late: list[tuple[Row, int, int]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    applied: int = 0
    superseded: int = 0
    stopped_at: int | None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """The record has had its effect, unless it was refused or `stopped_at` names it."""
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
        elif (bound := self._bound(row)) is not None:
            self.late.append((row, max(0, self.stream_time - row.timestamp), bound))
        else:
            self._accept(row)

    def settle(self, clock_ms: int) -> None:
        """What the configuration, which is a new one, no longer holds has left."""
        self._evict("window_close" if self.windowed else "time")

    def advance(self, stream_time: int) -> None:
        """Stream time is at least that."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self._evict("idle")

    def flush(self) -> None:
        """Everything held is emitted; windows are closed by it until their grace has passed."""
        remembered = {key: slot if slot.closed else slot.as_closed() for key, slot in self.held.items()}
        while self.held:
            self._emit_oldest("flush")
        self.held = remembered if self.windowed else {}

    @property
    def windowed(self) -> bool:
        """True when keys are of windows."""
        return self.config.until == "window_close"

    def _bound(self, row: Row) -> int | None:
        """The bound that a late record missed."""
        if self.windowed:
            open_after = self.stream_time - (self.config.grace or 0)
            assert row.key is not None
            slot = self.held.get((row.key, window_of(row)))
            return open_after if window_of(row)[1] <= open_after or (slot and slot.closed) else None
        lateness = self.config.max_lateness
        return None if lateness is None or row.timestamp >= self.stream_time - lateness else self.stream_time - lateness

    def _rejection(self, row: Row, clock_ms: int) -> str:
        if row.key is None:
            return "null key"
        if row.timestamp == NO_TIMESTAMP:
            return "no timestamp: null"
        if self.windowed and (reason := bad_window(row)):
            return reason
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        ahead = self.config.max_ahead
        return "too far ahead" if ahead is not None and row.timestamp > clock_ms + ahead else ""

    def _accept(self, row: Row) -> None:
        assert row.key is not None
        before = dict(self.held), list(self.emissions), self.stream_time
        window = window_of(row) if self.windowed else None
        old = self.held.get((row.key, window))
        fresh = row.timestamp if window is None else window[1]
        place = old.place if old and self.config.timer == "first_update" else fresh
        self.held[row.key, window] = Slot(place, old.arrival if old else row.offset, row, window)
        self.stream_time = max(self.stream_time, row.timestamp)
        self._evict("window_close" if self.windowed else "time")
        buffer = self.config.buffer
        if buffer and buffer.when_full == "shut_down" and self._full():
            self.held, self.emissions, self.stream_time = before
            self.stopped_at = row.offset
        elif old:
            self.superseded += 1
        else:
            self.applied += 1

    def _evict(self, cause_of_due: str) -> None:
        emits = self.config.buffer is not None and self.config.buffer.when_full == "emit"
        while self.held and (cause := (self._due() and cause_of_due) or (emits and self._full())):
            self._emit_oldest(cause)

    def _due(self) -> bool:
        until = self.config.until
        limit = self.config.grace if self.windowed else until.time_limit if isinstance(until, TimeLimit) else None
        return limit is not None and min(slot.place for slot in self.held.values()) <= self.stream_time - limit

    def _full(self) -> str:
        buffer = self.config.buffer
        open_keys = sum(not slot.closed for slot in self.held.values())
        if buffer and buffer.max_keys is not None and open_keys > buffer.max_keys:
            return "keys"
        return "bytes" if buffer and buffer.max_bytes is not None and self.held_bytes > buffer.max_bytes else ""

    @property
    def held_bytes(self) -> int:
        """The bytes held, of what `bytes_of` says."""
        return sum(self._size(slot.row) for slot in self.held.values() if not slot.closed)

    def _size(self, row: Row) -> int:
        parts = (row.value,) if self.config.bytes_of == "value" else (row.key, row.value, row.headers)
        bounds = 16 if self.windowed and self.config.bytes_of == "record" else 0
        return bounds + sum(len(part or b"") for part in parts)

    def _emit_oldest(self, cause: str) -> None:
        key = min(self.held, key=lambda held: self.held[held][:2])
        slot = self.held.pop(key)
        if not slot.closed and (slot.row.value is not None or not self.windowed):
            self.emissions.append((slot, cause))


def window_of(row: Row) -> tuple[int, int]:
    """The window that the headers name."""
    start, end = (int(header_value(row.headers, name) or b"") for name in (HEADER_WINDOW_START, HEADER_WINDOW_END))
    return start, end


def bad_window(row: Row) -> str:
    """Why the record is of no window; empty if it is of one."""
    bounds = [header_value(row.headers, name) for name in (HEADER_WINDOW_START, HEADER_WINDOW_END)]
    names = [name for name, _ in decode_headers(row.headers)]
    if not {HEADER_WINDOW_START.encode(), HEADER_WINDOW_END.encode()} <= set(names):
        return "no window: headers with its bounds are missing"
    numbers = [int(bound) if bound and bound.isdigit() and len(bound) < 20 else -1 for bound in bounds]
    start, end = numbers
    if not (0 <= start <= MAX_TIME and start <= end and (end <= MAX_WINDOW_END or end == MAX_TIMESTAMP)):
        return "no window: its bounds are no interval within the range of time"
    return ""
