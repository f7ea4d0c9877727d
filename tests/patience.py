"""Waiting for a driver's local states."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S, PAUSE_S = 120.0, 0.05


def until_done(work: Callable[[], bool]) -> None:
    """Call the work until it says that it is done: at first states may be on their way back."""
    deadline = time.monotonic() + PATIENCE_S
    while not work():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_S)
