"""Reference implementation of suppression, for tests only, in the words of KIP-328.

It inserts or updates, then evicts the oldest key while a bound is violated. It is slow: one dict, searched in full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.suppression.config import SuppressionRules, TimeLimit
from tidegate.operators.testing.keys_reference import Window, key_and_window


class Slot(NamedTuple):
    """A held key: its newest record, under the record's own key, and its place and arrival in the order of eviction.

    A closed window has only its key, and an arrival < 0.
    """

    place: int
    arrival: int
    row: Row
    window: Window = None

    @property
    def closed(self) -> bool:
        """Return True for a window whose final result was emitted."""
        return self.arrival < 0

    def as_closed(self) -> Slot:
        """Return the slot of the window after its result was emitted: without value and headers, and closed."""
        return self._replace(arrival=~self.arrival, row=self.row._replace(value=None, headers=b""))


@dataclass
class Reference:
    """One partition. `emissions` are (slot, cause), `late` (row, lateness, bound), `rejected` (row, reason).

    `stopped_at`: the offset of the record that `shut_down` did not accept.
    """

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
        """Reject the record, note it as late, or apply it; if `shut_down` stops, set `stopped_at` instead."""
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
        elif (bound := self._bound(row)) is not None:
            self.late.append((row, max(0, self.stream_time - row.timestamp), bound))
        else:
            self._accept(row)

    def settle(self, clock_ms: int) -> None:
        """Emit what a changed configuration no longer holds."""
        self._evict("window_close" if self.closes else "time")

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`, and emit with cause `idle` what is due by it."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self._evict("idle")

    def flush(self) -> None:
        """Emit everything held, with cause `flush`.

        With `until: window_close`, remember the windows as closed until their grace has passed.
        """
        remembered = {key: slot if slot.closed else slot.as_closed() for key, slot in self.held.items()}
        while self.held:
            self._emit_oldest("flush")
        self.held = remembered if self.closes else {}

    @property
    def closes(self) -> bool:
        """Return True with `until: window_close`."""
        return self.config.until == "window_close"

    def _bound(self, row: Row) -> int | None:
        """Return the bound that a late record missed; None if the record is not late."""
        if self.closes:
            open_after = self.stream_time - (self.config.grace or 0)
            key, window, _ = key_and_window(row, self.config)
            assert key is not None and window is not None
            slot = self.held.get((key, window))
            return open_after if window[1] <= open_after or (slot and slot.closed) else None
        lateness = self.config.max_lateness
        return None if lateness is None or row.timestamp >= self.stream_time - lateness else self.stream_time - lateness

    # Alike in other references on purpose: they share no rules, so that a mistake in one is not in all of them.
    def _rejection(self, row: Row, clock_ms: int) -> str:
        if row.key is None:
            return "null key"
        if row.timestamp == NO_TIMESTAMP:
            return "no timestamp: null"
        if fault := key_and_window(row, self.config).fault:
            return fault
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        ahead = self.config.max_ahead
        return "too far ahead" if ahead is not None and row.timestamp > clock_ms + ahead else ""

    def _accept(self, row: Row) -> None:
        before = dict(self.held), list(self.emissions), self.stream_time
        key, window, _ = key_and_window(row, self.config)
        assert key is not None
        old = self.held.get((key, window))
        fresh = window[1] if window is not None and self.config.timer == "window_end" else row.timestamp
        place = old.place if old and self.config.timer == "first_update" else fresh
        arrival = old.arrival if old else row.offset
        self.held[key, window] = Slot(place, arrival, row._replace(key=key), window)
        self.stream_time = max(self.stream_time, row.timestamp)
        self._evict("window_close" if self.closes else "time")
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

    def reached(self, slot: Slot, _cause: str) -> int | None:
        """Return the last stream time before the one at which the slot is due; None if time does not evict it."""
        return None if self._limit is None else slot.place + self._limit - 1

    @property
    def _limit(self) -> int | None:
        until = self.config.until
        return self.config.grace if self.closes else until.time_limit if isinstance(until, TimeLimit) else None

    def _due(self) -> bool:
        first = min(slot.place for slot in self.held.values())
        return self._limit is not None and first <= self.stream_time - self._limit

    def _full(self) -> str:
        buffer = self.config.buffer
        open_keys = sum(not slot.closed for slot in self.held.values())
        if buffer and buffer.max_keys is not None and open_keys > buffer.max_keys:
            return "keys"
        return "bytes" if buffer and buffer.max_bytes is not None and self.held_bytes > buffer.max_bytes else ""

    @property
    def held_bytes(self) -> int:
        """Return the bytes held, counted as `bytes_of` says."""
        return sum(self._size(slot.row) for slot in self.held.values() if not slot.closed)

    def _size(self, row: Row) -> int:
        parts = (row.value,) if self.config.bytes_of == "value" else (row.key, row.value, row.headers)
        bounds = 16 if self.config.windowed and self.config.bytes_of == "record" else 0
        return bounds + sum(len(part or b"") for part in parts)

    def _emit_oldest(self, cause: str) -> None:
        key = min(self.held, key=lambda held: self.held[held][:2])
        slot = self.held.pop(key)
        if not slot.closed and (slot.row.value is not None or not self.closes):
            self.emissions.append((slot, cause))
