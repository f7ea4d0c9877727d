"""A closed session accepts no records: its final result is the only one."""

from __future__ import annotations

import pytest

from tests.operators.windowed_aggregation.test_final_results import driver
from tidegate.operators.testing.driver import Driver, Emission

pytestmark = pytest.mark.fast

GAP = {"session": "5ms", "grace": "10ms"}


def results(emissions: list[Emission]) -> list[tuple[int | None, int | None, bytes | None]]:
    return [(emission.window_start, emission.window_end, emission.value) for emission in emissions]


def flushed() -> Driver:
    """T = 12; the session [10, 12] has left with a flush, and its grace passes after 27"""
    tested = driver(GAP)
    tested.pipe("k", "x", 10)
    tested.pipe("k", "x", 12)
    assert results(tested.flush()) == [(10, 12, b"2")]
    return tested


@pytest.mark.parametrize("time", [5, 9, 10, 11, 12, 14, 17])
def test_a_record_that_touches_a_flushed_session_alone_is_late(time: int) -> None:
    tested = flushed()
    assert tested.pipe("k", "x", time) == []
    assert [row["timestamp"] for row in tested.late] == [time]
    assert results(tested.advance(1_000)) == []


@pytest.mark.parametrize("time", [4, 18])
def test_a_record_beyond_the_gap_opens_a_new_session(time: int) -> None:
    tested = flushed()
    tested.pipe("k", "x", time)
    assert results(tested.advance(1_000)) == [(time, time, b"1")]


def test_a_record_that_touches_a_closed_session_and_an_open_one_is_in_the_open_one_alone() -> None:
    """[10, 12] is closed; 18 opens a session, which 14, 11 and 8 then reach, one through the other"""
    tested = flushed()
    for time in (18, 14, 11, 8, 9):
        tested.pipe("k", "x", time)
    assert tested.late == []
    assert results(tested.advance(1_000)) == [(8, 18, b"5")]


def test_after_its_grace_a_closed_session_does_not_prevent_a_new_one() -> None:
    """gap 5, no grace: [10, 12] closes when T is 18; then 13 is not late, and 15 neither"""
    tested = driver({"session": "5ms", "grace": 0}, retention="100ms")
    for time in (10, 12, 18, 13):
        tested.pipe("k" if time != 18 else "other", "x", time)
    assert tested.late == []
    assert (13, 13, b"1") in results(tested.advance(1_000))


def test_closed_sessions_that_overlap_are_found_again_after_a_restart() -> None:
    tested = flushed()
    for time in (18, 14, 11, 8):
        tested.pipe("k", "x", time)
    assert results(tested.flush()) == [(8, 18, b"4")]
    tested = tested.restarted()
    for time in (3, 12, 23):
        tested.pipe("k", "x", time)
    assert [row["timestamp"] for row in tested.late] == [3, 12, 23]
    assert tested.advance(1_000) == [] and tested.held() == []
