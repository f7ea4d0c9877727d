"""The wall clock: read here and nowhere else, so that whatever depends on it can be replayed."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since the epoch by the wall clock."""
    return time.time_ns() // 1_000_000
