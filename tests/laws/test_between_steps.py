"""What passes between the steps of a pipeline: in which order, with which numbers, and how far time has come."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.records import Row
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Advance, Partition

pytestmark = pytest.mark.fast

ROWS = [Row(key, b"v", time, at) for at, (key, time) in enumerate([(b"a", 1), (b"b", 2), (b"c", 3)], 5)]


def held(name: str, limit: str, **more: Any) -> dict[str, Any]:
    """A step that holds rows for so long."""
    return {"name": name, "kind": "suppression", "until": {"time_limit": limit}, **more}


def opened(*steps: dict[str, Any], time: str = "pipeline") -> Partition:
    """A partition of a pipeline with these steps."""
    config = PipelineConfig.model_validate({"input": "in", "steps": list(steps), "time": time, "windows": "ignore"})
    return Partition(operator_for(config), 12)


@pytest.mark.parametrize("cuts", [set(), {1}, {1, 2}])
def test_merged_rows_are_in_the_order_of_the_records_that_caused_them(cuts: set[int]) -> None:
    #   in      a1   b2   c3
    #   both    a a  b b  c c     however they are cut
    branches = held("left", "0ms"), held("right", "0ms", **{"from": "input"})
    played = opened(*branches, {"from": ["left", "right"], "to": "both"}).play_all(ROWS, cuts)
    assert b"".join(row["key"] for row in played.emissions) == b"aabbcc"


@pytest.mark.parametrize("cuts", [set(), {1}, {1, 2}])
def test_rows_behind_the_first_step_that_holds_state_are_numbered_by_arrival(cuts: set[int]) -> None:
    #   in      a1 (5)   b2 (6)   c3 (7)     the filter drops a
    #   all              b2 (0)   c3 (1)
    steps = held("first", "0ms"), {"filter": "key <> 'a'::BLOB"}, held("all", "1h")
    played = opened(*steps).play_all(ROWS, cuts)
    assert [(row["key"], row["offset"]) for row in played.held if row["step"] == "all"] == [(b"b", 0), (b"c", 1)]


def test_an_idle_advance_reaches_later_steps_as_the_marks_of_the_first_one() -> None:
    #   in      a1   | an advance to 21       first holds rows for 20: what leaves it later may be of 1
    #   first   a1     a1
    #   second         a1 (held)              its time is 1, not 21
    partition = opened(held("first", "20ms"), held("second", "5ms"))
    partition.play(ROWS[:1])
    partition.play(Advance(20))
    assert partition.trace.emissions == []
    held_now = [row for row in partition.state.snapshot().to_pylist() if row["step"]]
    assert [(row["step"], row["key"]) for row in held_now] == [("second", b"a")]


@pytest.mark.parametrize(("time", "released"), [("pipeline", [b"b"]), ("records", [])])
def test_with_the_time_of_records_only_rows_that_arrive_move_the_time_of_a_step(time: str, released: list[Any]) -> None:
    #   in      b2   a9        the filter drops a; second holds rows for 5
    #   second  b2   (9)       with the time of the pipeline b is due
    rows = [ROWS[1], Row(b"a", b"v", 9, 9)]
    for before in ([], [held("first", "0ms")]):
        played = opened(*before, {"filter": "key <> 'a'::BLOB"}, held("second", "5ms"), time=time).play_all(rows, set())
        assert [row["key"] for row in played.emissions] == released


def test_with_the_time_of_records_a_step_that_holds_state_passes_no_marks_on() -> None:
    #   in      b2   a9        first holds rows for 6, so b leaves, and a stays; second holds rows for 1
    #   second  b2   (3)       the mark 3 would release b
    rows = [ROWS[1], Row(b"a", b"v", 9, 9)]
    for time, released in (("pipeline", [b"b"]), ("records", [])):
        played = opened(held("first", "6ms"), held("second", "1ms"), time=time).play_all(rows, set())
        assert [row["key"] for row in played.emissions] == released
