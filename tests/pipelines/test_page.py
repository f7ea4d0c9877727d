"""The pipelines of docs/concepts/pipelines.md do what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS, blocks
from tidegate.contracts.config.base import read
from tidegate.contracts.operator import OperatorState, StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline import Pipeline
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.registry import config_type, operator_for

pytestmark = pytest.mark.fast

PAGE = DOCS / "concepts" / "pipelines.md"
HOUR, MINUTE = 3_600_000, 60_000


def config(name: str) -> PipelineConfig:
    """The pipeline of that name on the page."""
    files = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    [raw] = [file["operators"][name] for file in files if name in file["operators"]]
    return read(PipelineConfig, raw)


def passed(found: PipelineConfig, rows: list[Row], table: OperatorState | None = None) -> StepResult:
    operator = Pipeline(*steps_of(found))
    state = operator.open(MemoryStorage(operator.layout))
    if table is not None:
        state.read_table(table)
    return state.step(Records.from_rows(rows), 0)


def weather(*gusts: tuple[int, float]) -> OperatorState:
    """The table of the page, with gusts at JFK since these hours."""
    rules = config_type("table_history").model_validate({"input": "weather", "history_retention": "30d"})
    table = operator_for(rules)
    state = table.open(MemoryStorage(table.layout))
    rows = [Row(b"JFK", b'{"gust":%f}' % gust, hour * HOUR, at) for at, (hour, gust) in enumerate(gusts)]
    state.step(Records.from_rows(rows), 0)
    return state


def drawn(page: Path) -> list[Row]:
    """The events of the page's time line."""
    text, *_ = (block.text for block in blocks(page) if block.language == "text")
    events = re.findall(r"(\w) (\d\d):(\d\d)", text.splitlines()[0])
    keys = {"a": 1, "b": 2}
    return [
        Row(keys[key].to_bytes(4, "big"), b"x", int(hour) * HOUR + int(minute) * MINUTE, at)
        for at, (key, hour, minute) in enumerate(events)
    ]


def results(found: StepResult) -> list[tuple[int, Any, int]]:
    rows = found.emissions.to_pylist()
    return [(int.from_bytes(row["key"], "big"), json.loads(row["value"]), row["window_start"]) for row in rows]


def test_the_time_line_is_what_happens() -> None:
    rows = drawn(PAGE)
    assert len(rows) == 4
    assert results(passed(config("quiet_users"), rows)) == [(1, 2, 9 * HOUR), (2, 1, 10 * HOUR)]
    assert results(passed(config("quiet_users"), rows[:3])) == [(1, 2, 9 * HOUR)]
    assert results(passed(config("quiet_users"), rows[:2])) == []


def test_a_window_closes_although_the_filter_before_it_drops_what_closes_it() -> None:
    found = config("quiet_users")
    steps = found.model_dump(mode="json")["steps"]
    raw = {"input": "events", "key": "int32", "steps": [{"filter": "key <> 2"}, *steps]}
    rows = drawn(PAGE)
    assert results(passed(read(PipelineConfig, raw), rows[:3])) == [(1, 2, 9 * HOUR)]
    late = read(PipelineConfig, raw | {"time": "records"})
    assert results(passed(late, rows[:3])) == []
    assert results(passed(late, rows)) == [(1, 2, 9 * HOUR)]


def test_a_join_windows_and_a_suppression_are_one_pipeline() -> None:
    """The gust is above 40 from 9:00 on. The record of 12:00 releases the others and closes 9:00 to 10:00."""
    delays = [(8.5, 60), (9.1, 20), (9.2, 30), (9.3, None), (9.4, 5), (12, 90)]
    rows = [
        Row(b"JFK", json.dumps({"delay": delay, "other": 1}).encode(), int(hour * HOUR), at)
        for at, (hour, delay) in enumerate(delays)
    ]
    found = passed(config("flights"), rows, weather((0, 30.5), (9, 50.5)))
    *joined, result = found.emissions.to_pylist()
    assert [row["step"] for row in joined] == ["join_weather"] * 5
    assert json.loads(result["value"]) == {"n": 2, "worst": 30}
    assert (result["key"], result["window_start"]) == (b"JFK", 9 * HOUR)
    assert [(row["step"], row["cause"], row["source"]) for row in found.rejected.to_pylist()] == [("3", "no delay", 5)]
