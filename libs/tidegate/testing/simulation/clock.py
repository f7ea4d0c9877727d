"""A virtual clock: time passes only when a process waits."""

from __future__ import annotations

from collections.abc import Callable

EPOCH_MS = 1_700_000_000_000


class VirtualClock:
    """A monotonic clock, and a wall clock that can be set."""

    def __init__(self) -> None:
        self._now_s = 1_000.0
        self._set_by_ms = 0

    def advance(self, seconds: float) -> None:
        """Let that much time pass."""
        self._now_s += max(seconds, 0.0)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self._set_by_ms += by_ms

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return self._now_s

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return EPOCH_MS + self._set_by_ms + int(self._now_s * 1_000)


class ProcessClock:
    """The clock that processes are given: the virtual one, on which waiting lets other processes run."""

    def __init__(self, clock: VirtualClock, sleep: Callable[[float], None]) -> None:
        self.now_ms, self.monotonic, self.sleep = clock.now_ms, clock.monotonic, sleep
