"""Reference implementation of deduplication, for tests only: all first records of a key in a list, searched in full."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.deduplicate.config import DeduplicateRules
from tidegate.operators.testing.keys_reference import Window, key_and_window


@dataclass
class Reference:
    """One partition. `late`: (row, lateness, bound), `rejected`: (row, reason), `remembered`: (first record, window).

    `stopped_at`: the offset of the record that `shut_down` did not accept.
    """

    config: DeduplicateRules
    stream_time: int = -1
    remembered: list[tuple[Row, Window]] = field(default_factory=list)
    emissions: list[tuple[Row, Window]] = field(default_factory=list)
    late: list[tuple[Row, int, int]] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    superseded: int = 0
    stopped_at: int | None = None

    def process(self, row: Row, clock_ms: int) -> None:
        """Reject the record, note it as late, drop it as a duplicate, or emit it; or set `stopped_at` instead."""
        oldest = self.stream_time - (self.config.grace or 0)
        if reason := self._rejection(row, clock_ms):
            self.rejected.append((row, reason))
        elif self.config.grace is not None and row.timestamp < oldest:
            self.late.append((row, self.stream_time - row.timestamp, oldest))
        elif self._is_duplicate(row):
            self.superseded += 1
            self.advance(row.timestamp)
        else:
            self._emit(row)

    def settle(self, clock_ms: int) -> None:
        """Forget what a changed configuration no longer remembers."""
        self.remembered = self._unexpired(self.stream_time)

    def advance(self, stream_time: int) -> None:
        """Advance stream time to at least `stream_time`, and forget what expires by it."""
        self.stream_time = max(self.stream_time, min(stream_time, MAX_TIME))
        self.remembered = self._unexpired(self.stream_time)

    def flush(self) -> None:
        """Do nothing: first records are emitted at once."""

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the remembered keys; a windowed key has two numbers more."""
        return sum(map(_size, self.remembered))

    def _is_duplicate(self, row: Row) -> bool:
        key, window, _ = key_and_window(row, self.config)
        return any(
            (first.key, other) == (key, window) and abs(first.timestamp - row.timestamp) < self.config.within_ms
            for first, other in self.remembered
        )

    def _emit(self, row: Row) -> None:
        key, window, _ = key_and_window(row, self.config)
        first = row._replace(key=key), window
        kept = [*self._unexpired(max(self.stream_time, row.timestamp)), first]
        buffer = self.config.buffer
        if buffer is not None and buffer.when_full == "shut_down":
            full = buffer.max_keys is not None and len(kept) > buffer.max_keys
            if full or (buffer.max_bytes is not None and sum(map(_size, kept)) > buffer.max_bytes):
                self.stopped_at = row.offset
                return
        self.remembered.append(first)
        self.emissions.append(first)
        self.advance(row.timestamp)

    def _unexpired(self, stream_time: int) -> list[tuple[Row, Window]]:
        oldest = stream_time - self.config.remembered_ms
        return [first for first in self.remembered if first[0].timestamp > oldest]

    def _rejection(self, row: Row, clock_ms: int) -> str:
        newest = MAX_TIME if self.config.max_ahead is None else min(clock_ms + self.config.max_ahead, MAX_TIME)
        reasons = {
            "null key": row.key is None,
            "no timestamp: null": row.timestamp == NO_TIMESTAMP,
            key_and_window(row, self.config).fault: bool(key_and_window(row, self.config).fault),
            "negative timestamp": row.timestamp < 0,
            "timestamp out of range": row.timestamp > MAX_TIME,
            "too far ahead": row.timestamp > newest,
        }
        return next((reason for reason, applies in reasons.items() if applies), "")


def _size(first: tuple[Row, Window]) -> int:
    return len(first[0].key or b"") + (0 if first[1] is None else 16)
