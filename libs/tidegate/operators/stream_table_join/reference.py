"""The stream-table join as KIP-923 words it: a late record at once, the others by timestamp once the grace is over.

The slow oracle, for tests only: one list, sorted at every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidegate.contracts.event_time import ALWAYS, MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.keys_reference import Told, Window, told
from tidegate.operators.stream_table_join.config import StreamTableJoinRules


class Table(Protocol):
    """The table's side."""

    def get(self, key: bytes, as_of: int | None, window: Window) -> Row | None:
        """The record that is the version of that key then."""

    def has_expired(self, key: bytes, as_of: int, window: Window) -> bool:
        """True when what the key was then is no longer known."""


class Held(NamedTuple):
    """A record in the buffer, under its own key, the clock of the batch in which it came, and its key's window."""

    row: Row
    arrived: int
    window: Window


@dataclass
class Reference:
    """One partition. `emissions` are (row, its window, what it met, cause), `rejected` (row, reason).

    `open_until`: the event time up to which the table is complete, as far as records with a grace are concerned.
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
        """The record has had its effect, unless it was refused."""
        grace = self.config.grace or 0
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
            return
        self.applied += 1
        key, window, _ = self._told(row)
        row = row._replace(key=key)
        if row.key is None:
            self._join(row, window)
        elif grace and row.timestamp < self.stream_time - grace:
            self._join(row, window, late=True)
        else:
            self.stream_time = max(self.stream_time, row.timestamp)
            if grace:
                self.held.append(Held(row, clock_ms, window))
                self.release(clock_ms)
            else:
                self._join(row, window)

    def settle(self, clock_ms: int) -> None:
        """What the configuration, which is a new one, no longer holds has left."""
        self.release(clock_ms)

    def advance(self, stream_time: int) -> None:
        """Stream time is at least that."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self.release(None)

    def release(self, clock_ms: int | None) -> None:
        """What is due has left, as far as it does not wait for the table. None: no clock ends the waiting."""
        self.held.sort(key=lambda held: (held.row.timestamp, held.row.offset))
        while self.held and self._is_due(self.held[0], clock_ms):
            self._leave()

    def flush(self) -> None:
        """Nothing is held."""
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
        version = self.table.get(row.key, row.timestamp, window) if row.key is not None else None
        expired = row.key is not None and self.table.has_expired(row.key, row.timestamp, window)
        cause = "expired" if expired else "late" if late else "matched" if version else "unmatched"
        if version or self.config.join == "left":
            self.emissions.append((row, window, version, cause))

    def _rejection(self, row: Row, clock_ms: int) -> str:
        if row.value is None:
            return "null value"
        if row.timestamp == NO_TIMESTAMP:
            return "no timestamp: null"
        if fault := self._told(row).fault:
            return fault
        if row.timestamp < 0:
            return "negative timestamp"
        if row.timestamp > MAX_TIME:
            return "timestamp out of range"
        if self.config.max_ahead is not None and row.timestamp > clock_ms + self.config.max_ahead:
            return "too far ahead"
        keyed = self.config.join == "inner" or self.config.windowed
        return "null key" if row.key is None and keyed else ""

    def _told(self, row: Row) -> Told:
        """A join overwrites nothing: records of windows that nobody asked for meet what their own key does."""
        return told(row, self.config) if self.config.windowed else Told(row.key)
