"""The shapes of pipelines that the law suite draws: a law says nothing of a shape that is never drawn.

Few drawn histories reach a bound, so some that do are written here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, find, settings

from tidegate.contracts.records import Row
from tidegate.operators.pipeline.cases import pipeline_reference
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.pipeline.strategies import passing_configs, pipeline_configs, pipelines_with_a_join
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import NO_RECORD, Advance, Event, Flush, Partition
from tidegate.runtime.configuration.application import settings_of

pytestmark = pytest.mark.fast

FOUND = settings(phases=[Phase.generate], max_examples=2_000)
Drawn = list[dict[str, Any]]


def in_a_branch(steps: Drawn) -> Drawn:
    return [step for step in steps if step.get("name", "").startswith(("b", "c"))]


def merges(steps: Drawn) -> Drawn:
    return [step for step in steps if isinstance(step.get("from"), list)]


def joins(steps: Drawn) -> Drawn:
    return [step for step in steps if "table" in step]


def before_a_fork(steps: Drawn) -> Drawn:
    """The steps of the first chain that a side branch begins at."""
    begins = {step.get("from") for step in steps if step.get("name") in ("b0", "c0")}
    return [step for step in steps if step.get("name", "").startswith("s") and step["name"] in begins]


def stops(steps: Drawn) -> bool:
    return any(step.get("buffer", {}).get("when_full") == "shut_down" for step in steps)


SHAPES: dict[str, tuple[Any, Callable[[Drawn], Any]]] = {
    "windows in a side branch": (pipeline_configs, lambda steps: any("window" in step for step in in_a_branch(steps))),
    "two side branches": (pipeline_configs, lambda steps: {"b0", "c0"} <= {step.get("name") for step in steps}),
    "a bound that stops a pipeline with branches": (
        pipeline_configs,
        lambda steps: stops(steps) and in_a_branch(steps),
    ),
    "a topic of what meets": (pipeline_configs, lambda steps: any("to" in step for step in merges(steps))),
    "a topic of merged records": (passing_configs, lambda steps: any("to" in step for step in merges(steps))),
    "a step that holds merged records": (passing_configs, lambda steps: any("kind" in step for step in merges(steps))),
    "a join with two side branches": (
        pipelines_with_a_join,
        lambda steps: {"b0", "c0"} <= {step.get("name") for step in steps},
    ),
    "a join in a side branch": (pipelines_with_a_join, lambda steps: joins(in_a_branch(steps))),
    "a join before a fork, and another one behind it": (
        pipelines_with_a_join,
        lambda steps: joins(in_a_branch(steps)) and joins(before_a_fork(steps)),
    ),
    "a join of what meets": (pipelines_with_a_join, lambda steps: joins(merges(steps))),
    "a join behind windows": (
        pipelines_with_a_join,
        lambda steps: any("window" in one and "table" in other for one, other in pairwise(steps)),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_laws_draw_this_shape(shape: str) -> None:
    configs, is_there = SHAPES[shape]
    drawn: PipelineConfig = find(configs(), lambda config: bool(is_there(settings_of(config)["steps"])), settings=FOUND)
    assert is_there(settings_of(drawn)["steps"])


def held(name: str, limit: str, most: int | None = None) -> dict[str, Any]:
    """A step that holds rows for so long; a row beyond the most that it holds stops the pipeline."""
    full = {} if most is None else {"buffer": {"max_keys": most, "when_full": "shut_down"}}
    return {"name": name, "kind": "suppression", "until": {"time_limit": limit}, **full}


BOUNDED: dict[str, Drawn] = {
    "one step": [held("all", "9ms", 1)],
    "behind a step": [held("first", "4ms"), held("all", "90ms", 1)],
    "in two branches": [held("first", "4ms"), held("all", "9ms", 1), {"from": "input", **held("other", "90ms", 2)}],
    "behind a merge": [
        held("first", "4ms"),
        {"from": "input", **held("other", "5ms")},
        {"from": ["first", "other"], **held("all", "90ms", 1)},
    ],
}
#   offset  0   1   2   3   4    5      the first step of a chain releases a (3) and b at 9
#   row     a1  b2  a3  c9  d12  d20
ROWS = [
    Row(key, b"v", time, at)
    for at, (key, time) in enumerate([(b"a", 1), (b"b", 2), (b"a", 3), (b"c", 9), (b"d", 12), (b"d", 20)])
]
HISTORIES: dict[str, list[Event]] = {
    "records": [*ROWS],
    "an advance": [*ROWS[:3], Advance(30), *ROWS[3:]],
    "a flush": [*ROWS[:2], Flush(), *ROWS[2:]],
}
STOPS = {
    "one step": {"records": 1, "an advance": 1, "a flush": 1},
    "behind a step": {"records": 3, "an advance": NO_RECORD, "a flush": NO_RECORD},
    "in two branches": {"records": 3, "an advance": NO_RECORD, "a flush": NO_RECORD},
    "behind a merge": {"records": 3, "an advance": NO_RECORD, "a flush": NO_RECORD},
}
"""The offset before which the pipeline stops, or that no record has caused the stop."""


@pytest.mark.parametrize("cuts", [set(), {1}, {2, 4}])
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", BOUNDED)
def test_a_bound_of_any_step_stops_the_whole_pipeline_where_the_reference_stops(
    name: str, history: str, cuts: set[int]
) -> None:
    config = PipelineConfig.model_validate({"input": "in", "steps": BOUNDED[name]})
    played = Partition(operator_for(config), 12).play_all(HISTORIES[history], cuts)
    assert played == pipeline_reference(config, HISTORIES[history], 12)
    assert played.stopped_at == STOPS[name][history]
