"""Waiting in tests of real parts."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

PATIENCE_S = 300
"""A machine under load, with a cold Spark, takes its time."""


def wait_for(condition: Callable[[], object], what: str = "what the test waits for") -> None:
    """Wait until the condition holds. Raise AssertionError, with `what`, after `PATIENCE_S`."""
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline, what
        sleep(0.02)
