"""A clock that stands still until a test moves it."""

from __future__ import annotations


class StillClock:
    """A clock whose `now`, in seconds, a test sets."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None: ...
