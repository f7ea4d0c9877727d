"""Reference implementation of the stream-table join, for tests only, in the words of KIP-923.

It joins late records at once, and all others in timestamp order when their grace is over. It is slow: it sorts the list
of held records at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidegate.contracts.event_time import ALWAYS, MAX_TIME, MAX_TIMESTAMP, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.stream_table_join.config import StreamTableJoinRules
from tidegate.operators.testing.keys_reference import KeyAndWindow, Window, key_and_window


class Table(Protocol):
    """The table that the join looks up in."""

    @property
    def windowed(self) -> bool:
        """Return True if windows are part of keys."""

    def get(self, key: bytes, as_of: int | None, window: Window) -> Row | None:
        """Return the record that is the key's version at `as_of`; None if there is none or it is a tombstone."""

    def has_expired(self, key: bytes, as_of: int, window: Window) -> bool:
        """Return True if the version valid at `as_of` may have expired."""


class Held(NamedTuple):
    """A buffered record, under its own key, with the clock of the batch in which it arrived, and its key's window."""

    row: Row
    arrived: int
    window: Window


@dataclass
class Reference:
    """One partition. `emissions` are (row, its window, the version joined, cause), `rejected` (row, reason).

    `open_until`: the event time up to which the table is complete for records with a grace.
    """

    config: StreamTableJoinRules
    table: Table
    stream_time: int = -1
    held: list[Held] = field(default_factory=list)
    emissions: list[tuple[Row, Window, Row | None, str]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    applied: int = 0
    open_until: int = ALWAYS
    stopped_at: None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """Join what is due, if the table came further; then reject the record, join it, or buffer it."""
        self.release(clock_ms)
        grace = self.config.grace or 0
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
            return
        self.applied += 1
        key, window, _ = self._key_and_window(row)
        row = row._replace(key=key)
        if row.key is None:
            self._join(row, window)
        elif grace and row.timestamp < min(self.stream_time - grace, self.oldest):
            self._join(row, window, late=True)
        else:
            self.stream_time = max(self.stream_time, row.timestamp)
            if grace:
                self.held.append(Held(row, clock_ms, window))
                self.release(clock_ms)
            else:
                self._join(row, window)

    @property
    def oldest(self) -> int:
        """Return the timestamp of the oldest record held."""
        return min((held.row.timestamp for held in self.held), default=MAX_TIMESTAMP)

    def reached(self, row: Row, *_joined: object) -> int | None:
        """Return the stream time at which the record is due; None without a grace, for nothing is held then."""
        return row.timestamp + self.config.grace if self.config.grace else None

    def settle(self, clock_ms: int) -> None:
        """Join what a changed configuration no longer holds."""
        self.release(clock_ms)

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`, and join what is due by it."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self.release(None)

    def release(self, clock_ms: int | None) -> None:
        """Join what is due and does not wait for the table. `clock_ms` None: `wait_for_table` does not run out."""
        self.held.sort(key=lambda held: (held.row.timestamp, held.row.offset))
        while self.held and self._is_due(self.held[0], clock_ms):
            self._leave()

    def flush(self) -> None:
        """Join everything held."""
        while self.held:
            self._leave()

    def _is_due(self, held: Held, clock_ms: int | None) -> bool:
        if held.row.timestamp > self.stream_time - (self.config.grace or 0):
            return False
        if not self.config.grace or held.row.timestamp <= self.open_until:
            return True
        wait = self.config.wait_for_table
        return wait is not None and (clock_ms or 0) >= held.arrived + wait

    def _leave(self) -> None:
        held = self.held.pop(0)
        self._join(held.row, held.window)

    def _join(self, row: Row, window: Window, late: bool = False) -> None:
        known = window if self.table.windowed else None
        version = self.table.get(row.key, row.timestamp, known) if row.key is not None else None
        expired = row.key is not None and self.table.has_expired(row.key, row.timestamp, known)
        cause = "expired" if expired else "late" if late else "matched" if version else "unmatched"
        if version or self.config.join == "left":
            self.emissions.append((row, window, version, cause))

    def _rejection(self, row: Row, clock_ms: int) -> str:
        if row.value is None:
            return "null value"
        if row.timestamp == NO_TIMESTAMP:
            return "no timestamp: null"
        if fault := self._key_and_window(row).fault:
            return fault
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        if self.config.max_ahead is not None and row.timestamp > clock_ms + self.config.max_ahead:
            return "too far ahead"
        keyed = self.config.join == "inner" or self.config.windowed
        return "null key" if row.key is None and keyed else ""

    def _key_and_window(self, row: Row) -> KeyAndWindow:
        """Return the record's key and window. Without windowed keys the record's own key is looked up as it is."""
        return key_and_window(row, self.config) if self.config.windowed else KeyAndWindow(row.key)
