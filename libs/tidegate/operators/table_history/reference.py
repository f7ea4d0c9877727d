"""Reference implementation of a versioned table, for tests only, in the words of KIP-889.

It finds every version of a key by the time from which it was valid. It is slow: a dict of dicts, searched in full.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.contracts.event_time import ALWAYS, MAX_TIME, NEVER, NO_STREAM_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.table_history.config import TableHistoryRules
from tidegate.operators.testing.keys_reference import Window, key_and_window


@dataclass
class Reference:
    """One partition. `late` are (row, lateness, bound), `rejected` (row, reason).

    `needs`: the earliest time that a reader may still look up; `gone`: the time before which versions have expired.
    """

    config: TableHistoryRules
    stream_time: int = -1
    versions: dict[tuple[bytes, Window], dict[int, Row]] = field(default_factory=dict)
    late: list[tuple[Row, int, int]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    applied: int = 0
    needs: int = ALWAYS
    gone: int = NEVER
    superseded: int = 0
    stopped_at: None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """Reject the record, note it as late, or apply it."""
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
        elif self._is_history and row.timestamp < self._oldest_write:
            self.late.append((row, self.stream_time - row.timestamp, self._oldest_write))
        else:
            self._accept(row)

    def settle(self, clock_ms: int) -> None:
        """Remove what a changed configuration no longer keeps."""
        self._expire()

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`, and remove what expires by it."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self._expire()

    def flush(self) -> None:
        """Do nothing: a table holds nothing back."""

    def get(self, key: bytes, as_of: int | None = None, window: Window = None) -> Row | None:
        """Return the version valid at `as_of` (None: the newest); None if there is none or it is a tombstone."""
        history = self.versions.get((key, window))
        if not history:
            return None
        newest = max(history)
        if as_of is None or not self._is_history:
            found = newest
        elif as_of < self.floor:
            found = newest if newest <= as_of else -1
        else:
            found = max((time for time in history if time <= as_of), default=-1)
        return history[found] if found in history and history[found].value is not None else None

    @property
    def windowed(self) -> bool:
        """Return True if windows are part of keys."""
        return self.config.windowed

    def has_expired(self, key: bytes, as_of: int, window: Window = None) -> bool:
        """Return True if the version valid at `as_of` may have expired; the newest version never expires."""
        newest = max(self.versions.get((key, window), {}), default=NEVER)
        return self._is_history and as_of < min(self.floor, newest)

    def hold(self, needs: int) -> None:
        """Keep what a reader may look up as of `needs` or later, and remove the rest of what has expired."""
        self.needs = needs
        self._expire()

    def get_range(self, key: bytes, first: int, last: int) -> list[Row]:
        """Return the versions valid at some instant of [first, last], the oldest first, without tombstones."""
        history, found = self.versions.get((key, None), {}), []
        if last < self.floor:
            return [row for row in [self.get(key, last)] if row and first <= last]
        for time in sorted(history):
            until = min((other for other in history if other > time), default=2**63)
            if max(time, first) <= min(until - 1, last) and history[time].value is not None:
                found.append(history[time])
        return found

    @property
    def _is_history(self) -> bool:
        return self.config.history_retention is not None

    @property
    def floor(self) -> int:
        """Return the first time from which on all versions are kept."""
        if self.stream_time == NO_STREAM_TIME:
            return self.gone
        return max(self.gone, min(self._oldest_write, self.needs))

    @property
    def _oldest_write(self) -> int:
        return self.stream_time - (self.config.history_retention or 0)

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
        key, window, _ = key_and_window(row, self.config)
        assert key is not None
        history = self.versions.setdefault((key, window), {})
        self.superseded += row.timestamp in history
        self.applied += row.timestamp not in history
        if not self._is_history:
            history.clear()
        history[row.timestamp] = row._replace(key=key)
        self.advance(row.timestamp)

    def _expire(self) -> None:
        """Remove all but the newest of each key's versions that are valid from the floor or earlier."""
        if not self._is_history:
            return
        self.gone = self.floor
        for history in self.versions.values():
            for time in sorted(time for time in history if time <= self.floor)[:-1]:
                del history[time]
