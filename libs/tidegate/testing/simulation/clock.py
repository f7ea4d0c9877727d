"""Time that goes on only when somebody waits."""

from __future__ import annotations

EPOCH_MS = 1_700_000_000_000


class VirtualClock:
    """A monotonic clock, and a wall clock beside it that can be set."""

    def __init__(self) -> None:
        self._now_s = 1_000.0
        self._set_by_ms = 0

    def advance(self, seconds: float) -> None:
        """That much time has gone by."""
        self._now_s += max(seconds, 0.0)

    def jump(self, by_ms: int) -> None:
        """The wall clock was set forward or back."""
        self._set_by_ms += by_ms

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self._now_s

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the wall clock."""
        return EPOCH_MS + self._set_by_ms + int(self._now_s * 1_000)
