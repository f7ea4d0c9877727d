"""The start of a chain on a DataFrame refuses wrong values before Spark is asked for anything."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tests.application.test_wrong_types import WRONG
from tidegate.application.definitions.definition import Definition
from tidegate.application.frames.source import FrameSource
from tidegate.application.places import caller
from tidegate.contracts.errors import ConfigurationError
from tidegate.runtime.stream.config import StreamConfig

pytestmark = pytest.mark.fast


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[StreamConfig]:
    """The configurations of the queries that would start; none does."""
    found: list[StreamConfig] = []

    def start(rows: Any, config: StreamConfig, columns: Any, trigger: Any) -> Any:
        found.append(config)
        return SimpleNamespace(isActive=False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("tidegate.runtime.stream.query.start_query", start)
    return found


def chain() -> tg.Stream:
    """The first record of each key of a DataFrame."""
    columns: Any = None
    frame: Any = SimpleNamespace(sparkSession=None)
    source = FrameSource(frame, columns, key_type=None, value_type=frame)
    return tg.Stream(Definition("").after(".stream", caller(), {}), source).deduplicate(within="forever")


MEANINGLESS: dict[str, list[Any]] = {
    "name": ["", "a b", "a.b"],
    "lake": ["", " ", "hdfs://namenode/lake"],
    "partitions": [0, -1, 1.5],
    "keep_output": ["", "soon", "-5s"],
    "state": ["", "s3://bucket/state"],
    "checkpoint": ["", "s3://bucket/checkpoint"],
}
"""Values of the right types that mean nothing."""
RIGHT: dict[str, tuple[type, ...]] = {
    "name": (),
    "lake": (Path, str),
    "partitions": (int,),
    "keep_output": (),
    "state": (Path, str),
    "checkpoint": (Path, str, type(None)),
    "trigger": (dict, type(None)),
}
"""The types of those values of WRONG that a parameter takes."""


@pytest.mark.parametrize("parameter", RIGHT)
def test_a_value_that_nothing_takes_is_refused_with_the_line_of_the_start(
    parameter: str, started: list[StreamConfig]
) -> None:
    for wrong in WRONG:
        problems = refusal({"name": "once", "lake": "lake", parameter: wrong})
        assert problems or isinstance(wrong, RIGHT[parameter]), f"{wrong!r} was taken"
    del started[:]
    for wrong in MEANINGLESS.get(parameter, []):
        assert refusal({"name": "once", "lake": "lake", parameter: wrong}), f"{wrong!r} was taken"
    assert not started


def refusal(given: dict[str, Any]) -> bool:
    """Whether the start is refused, with a place, a cause and a remedy for each problem."""
    try:
        chain().start(**given)
    except ConfigurationError as error:
        for problem in error.problems:
            assert problem.where.startswith("test_frames.py:") and ".start()" in problem.where
            assert problem.cause and problem.remedy
        return True
    return False


def test_every_parameter_of_start_is_tried() -> None:
    assert {*inspect.signature(tg.Stream.start).parameters} - {"self"} == RIGHT.keys()


def test_folders_are_those_of_the_working_directory_unless_others_are_named(
    tmp_path: Path, started: list[StreamConfig]
) -> None:
    chain().start("once", lake="lake")
    [config] = started
    assert (config.log.url, config.state) == (str(tmp_path / "lake" / "once"), tmp_path / "state")
    assert (config.checkpoint, config.partitions) == (tmp_path / "lake" / "_checkpoints" / "once", 4)
    assert config.rules.kind == "deduplicate"
