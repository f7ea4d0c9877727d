"""The clock: the time, and waiting.

The wall clock is read only here, so that everything that depends on it can be replayed. A driver and its tasks get the
clock as an argument, from their environment.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """A wall clock, which can be set, a monotonic clock, and waiting."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; they never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        ...


@dataclass(frozen=True)
class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; they never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
