"""Answers of slow sources: pages show the latest one and do not wait for the next."""

from __future__ import annotations

from threading import Event
from time import monotonic
from unittest.mock import patch

import pytest

from tests.console.clock import StillClock
from tests.patience import wait_for
from tidegate.console.pages import latest
from tidegate.console.pages.latest import FRESH_S, KEPT_S, PATIENCE_S, RECENT_S, Latest

pytestmark = pytest.mark.fast


class Source:
    """It counts how often it was asked, and answers with that number when it is let."""

    def __init__(self) -> None:
        self.asked, self.may_answer, self.clock = 0, Event(), StillClock()
        self.latest = Latest(self._ask, -1, self.clock)

    def answered(self) -> Source:
        """It has given its first answer, and may give more; returns itself."""
        self.may_answer.set()
        wait_for(lambda: self.latest.get() == 1, "the first answer")
        return self

    def _ask(self) -> int:
        self.asked += 1
        self.may_answer.wait(10)
        return self.asked


def test_a_source_that_does_not_answer_is_hardly_waited_for() -> None:
    source, started = Source(), monotonic()
    assert source.latest.get() == -1
    assert monotonic() - started < 10 * PATIENCE_S
    source.may_answer.set()


def test_an_answer_is_used_as_long_as_it_is_fresh_and_then_asked_for_again() -> None:
    source = Source().answered()
    source.clock.now += FRESH_S
    assert (source.latest.get(), source.asked) == (1, 1)
    source.clock.now += 1
    wait_for(lambda: source.latest.get() == 2, "the second answer")


def test_a_recent_answer_is_shown_at_once_while_the_next_one_is_late() -> None:
    source = Source().answered()
    source.may_answer.clear()
    source.clock.now += RECENT_S
    with patch.object(latest, "PATIENCE_S", 10.0):
        started = monotonic()
        assert (source.latest.get(), source.asked) == (1, 2)
    assert monotonic() - started < 5
    source.may_answer.set()


def test_an_old_answer_is_shown_for_a_while_and_then_no_more() -> None:
    source = Source().answered()
    source.may_answer.clear()
    source.clock.now += KEPT_S
    assert source.latest.get() == 1
    source.clock.now += 1
    assert source.latest.get() == -1
    source.may_answer.set()


def test_a_failure_of_the_source_is_raised_where_its_answer_is_wanted() -> None:
    latest = Latest[int](lambda: 1 // 0, -1)
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: latest.get() == 1, "an answer that never comes")
