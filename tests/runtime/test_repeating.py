"""Repeated work of one process: leases of many drivers share a few threads."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event
from threading import enumerate as threads

import pytest

from tests.patience import PATIENCE_S, wait_for
from tidegate.runtime.threads import REPEATING_THREADS, repeating

pytestmark = pytest.mark.fast


def named(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threads())


def test_the_work_of_a_hundred_drivers_is_repeated_on_a_few_threads() -> None:
    counts = [0] * 100

    def add(at: int) -> None:
        counts[at] += 1

    with ExitStack() as running:
        for at in range(100):
            running.enter_context(repeating(lambda at=at: add(at), 0.001, "hundred"))
        wait_for(lambda: min(counts) >= 3, "each is repeated")
        assert named("hundred") <= REPEATING_THREADS
    wait_for(lambda: named("hundred") == 0, "no thread is left")


def test_work_that_waits_or_fails_does_not_end_the_others() -> None:
    hold, done = Event(), Event()

    def fail() -> None:
        raise ValueError("a defect")

    with (
        repeating(lambda: hold.wait(PATIENCE_S) and None, 0.001, "slow"),
        repeating(fail, 0.001, "failing"),
        repeating(done.set, 0.02, "quick"),
    ):
        for _time in range(3):
            assert done.wait(PATIENCE_S)
            done.clear()
        hold.set()


def test_ended_work_is_not_called_again() -> None:
    calls: list[int] = []
    with repeating(lambda: calls.append(1), 0.001, "ending"):
        wait_for(lambda: len(calls) > 1, "it is repeated")
    wait_for(lambda: named("ending") == 0, "its thread has ended")
    seen = len(calls)
    Event().wait(0.02)
    assert len(calls) == seen
