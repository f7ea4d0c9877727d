"""Reference implementation of the stream-stream join, for tests only, in the words of KIP-328 and KIP-633.

It searches the list of all held records for each record, and for windows that have closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.stream_stream_join.config import StreamStreamJoinRules
from tidegate.operators.testing.keys_reference import Window, key_and_window


@dataclass
class Held:
    """A held record, under its own key, with its key's window. `waits`: it is emitted alone if it finds no partner."""

    row: Row
    window: Window
    waits: bool


class Pair(NamedTuple):
    """The records of a result, one of which may be missing, and the window of their key."""

    left: Row | None
    right: Row | None
    window: Window

    @property
    def alone(self) -> Row | None:
        """Return the record that has no partner, if one is missing."""
        return self.right if self.left is None else self.left if self.right is None else None


@dataclass
class Reference:
    """One partition. `late`: (row, lateness, bound), `rejected`: (row, reason)."""

    config: StreamStreamJoinRules
    stream_time: int = -1
    held: list[Held] = field(default_factory=list)
    emissions: list[Pair] = field(default_factory=list)
    late: list[tuple[Row, int, int]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    applied: int = 0
    stopped_at: None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """Reject the record, note it as late, or join it with the records that are held, and hold it."""
        key, window, _ = key_and_window(row, self.config)
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
        elif key is None:
            self.applied += 1
            self._emit_alone(row, None)
        elif self._closes(row) < self.stream_time:
            bound = self.stream_time - self.config.open_for(row.port)
            self.late.append((row, self.stream_time - row.timestamp, bound))
        else:
            self.applied += 1
            self.advance(row.timestamp)
            self._join(Held(row._replace(key=key), window, self.config.pads(row.port)))

    def settle(self, clock_ms: int) -> None:
        """Let the windows close that stream time has passed."""
        self.advance(self.stream_time)

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`; emit alone what found no partner before its window closed."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self._release(lambda held: self._closes(held.row) < self.stream_time)
        oldest = self.stream_time - self.config.held_for
        self.held = [held for held in self.held if held.row.timestamp >= oldest]

    def flush(self) -> None:
        """Emit alone what has found no partner, and hold nothing."""
        self._release(lambda held: True)
        self.held = []

    def in_order(self) -> list[Held]:
        """Return what is held, in the order in which it leaves."""
        return sorted(self.held, key=lambda held: (self._leaves(held), held.row.port, held.row.offset))

    def reached(self, left: Row | None, right: Row | None, window: Window) -> int | None:
        """Return the last stream time at which the window of a record without a partner was open; None for a pair."""
        alone = Pair(left, right, window).alone
        return self._closes(alone) if alone and alone.key is not None else None

    def _join(self, held: Held) -> None:
        partners = [other for other in self.held if self._are_partners(held, other)]
        for other in sorted(partners, key=lambda other: (other.row.timestamp, other.row.offset)):
            held.waits = other.waits = False
            pair = (other.row, held.row) if held.row.port else (held.row, other.row)
            self.emissions.append(Pair(*pair, held.window))
        self.held.append(held)

    def _are_partners(self, one: Held, other: Held) -> bool:
        if one.row.port == other.row.port or (one.row.key, one.window) != (other.row.key, other.window):
            return False
        left, right = sorted((one.row, other.row), key=lambda row: row.port)
        return left.timestamp - self.config.before <= right.timestamp <= left.timestamp + self.config.after

    def _release(self, closes: Callable[[Held], bool]) -> None:
        """Emit alone, in order, the records that wait for a partner and whose window `closes`; hold them no longer."""
        for held in self.in_order():
            if held.waits and closes(held):
                self._emit_alone(held.row, held.window)
                self.held.remove(held)

    def _emit_alone(self, row: Row, window: Window) -> None:
        left, right = (None, row) if row.port else (row, None)
        self.emissions.append(Pair(left, right, window))

    def _closes(self, row: Row) -> int:
        return row.timestamp + self.config.open_for(row.port)

    def _leaves(self, held: Held) -> int:
        return self._closes(held.row) if held.waits else held.row.timestamp + self.config.held_for

    # Alike in other references on purpose: they share no rules, so that a mistake in one is not in all of them.
    def _rejection(self, row: Row, clock_ms: int) -> str:
        if row.value is None:
            return "null value"
        if row.timestamp == NO_TIMESTAMP:
            return "no timestamp: null"
        if fault := key_and_window(row, self.config).fault:
            return fault
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        if self.config.max_ahead is not None and row.timestamp > clock_ms + self.config.max_ahead:
            return "too far ahead"
        keyed = self.config.windowed or not self.config.pads(row.port)
        return "null key" if row.key is None and keyed else ""
