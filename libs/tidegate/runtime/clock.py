"""The wall clock. It is read only here, so that everything that depends on it can be replayed."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the wall clock in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000
