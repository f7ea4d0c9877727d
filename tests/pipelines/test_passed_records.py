"""Pipelines with results that no step which holds state has taken: records of the input that pass through."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineConfig

pytestmark = pytest.mark.fast

FIRST = {"name": "first", "kind": "deduplicate", "within": "10ms", "grace": "10ms"}
OTHERS = {"filter": "key <> 'a'::BLOB"}
ROWS = [Row(b"a", b"1", 30, 0), Row(b"b", b"2", 20, 1), Row(None, b"3", 10, 2), Row(b"b", b"4", 25, 3)]


def state_of(*steps: dict[str, Any], **options: Any) -> Any:
    operator = pipeline_of(read(PipelineConfig, {"input": "in", "steps": list(steps), **options}))
    return operator.open(MemoryStorage(operator.layout))


def passed(*steps: dict[str, Any], rows: list[Row] = ROWS, **options: Any) -> StepResult:
    found: StepResult = state_of(*steps, **options).step(Records.from_rows(rows), 0)
    return found


def emitted(found: StepResult) -> list[tuple[Any, ...]]:
    return [(row["step"], row["key"], row["value"], row["timestamp"]) for row in found.emissions.to_pylist()]


def test_records_of_the_input_are_results_if_no_step_that_holds_state_takes_them() -> None:
    every = passed()
    assert emitted(every) == [("input", row.key, row.value, row.timestamp) for row in ROWS]
    assert every.emissions["cause"].to_pylist() == ["passed"] * 4
    chosen = passed(OTHERS, {"filter": "timestamp < 25"})
    assert emitted(chosen) == [("1", b"b", b"2", 20)]
    assert (chosen.counts.applied, chosen.counts.emitted, chosen.stream_time) == (4, 1, 30)


def test_a_record_that_a_step_without_state_rejects_can_be_redriven() -> None:
    found = passed({"require": "timestamp > 10", "reason": "early"}, {"select": {"n": "timestamp"}})
    [refused] = found.rejected.to_pylist()
    assert [refused[name] for name in ("cause", "topic", "offset", "value")] == ["early", None, 2, b"3"]
    assert (found.counts.applied, found.counts.rejected) == (3, 1)


def test_a_record_with_a_time_that_operators_reject_does_not_pass() -> None:
    rows = [Row(b"a", b"1", at, offset) for offset, at in enumerate([-1, MAX_TIME + 1, 7_000, 5])]
    found = passed(OTHERS | {"filter": "true"}, rows=rows, max_ahead="6s")
    causes = ["negative timestamp", "timestamp out of range", "too far ahead"]
    assert [(row["cause"], row["step"]) for row in found.rejected.to_pylist()] == [(cause, "1") for cause in causes]
    assert (emitted(found), found.stream_time) == ([("1", b"a", b"1", 5)], 5)


def test_results_have_the_timestamps_of_the_field_that_says_them() -> None:
    rows = [Row(b"a", b'{"at": 7}', 30, 0), Row(b"a", b"{}", 31, 1)]
    found = passed(rows=rows, timestamp={"field": "at"})
    assert emitted(found) == [("input", b"a", b'{"at": 7}', 7)]
    assert found.rejected.num_rows == 1


def test_keys_with_windows_keep_them() -> None:
    key = b"a" + (5).to_bytes(8, "big")
    found = passed(rows=[Row(key, b"1", 7, 0), Row(None, b"2", 8, 1)], windows={"time": "10ms"})
    [row] = found.emissions.to_pylist()
    assert [row[name] for name in ("key", "window_start", "window_end")] == [b"a", 5, 15]
    assert found.rejected["cause"].to_pylist() == ["null key"]


def test_several_results_of_a_record_pass_in_the_order_of_the_function() -> None:
    repeated = {"flat_map": "tidegate.operators.testing.batch_functions:repeated", "emits": {"n": "int64"}}
    rows = [Row(b"ab", b"x", 7, 4), Row(b"a", b"x", 8, 9)]
    found = passed(repeated, rows=rows)
    assert [row["source"] for row in found.emissions.to_pylist()] == [4, 4, 9]
    assert found.emissions["value"].to_pylist() == [b'{"n":0}', b'{"n":1}', b'{"n":0}']


def test_a_topic_of_records_stands_beside_steps_that_hold_state_and_moves_no_time_of_theirs() -> None:
    """The filter drops a, whose time passes; `require` lets no time of c reach the step with state."""
    rows = [*ROWS, Row(b"c", b"5", 90, 4), Row(b"b", b"6", 21, 5)]
    steps = [{"to": "all"}, {"require": "key <> 'c'::BLOB", "reason": "it is c"}, FIRST]
    found = passed(*steps, rows=rows)
    assert [row[2] for row in emitted(found) if row[0] == "input"] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [row[2] for row in emitted(found) if row[0] == "first"] == [b"1", b"2"]
    assert found.stream_time == 30


def test_what_passes_records_on_comes_and_goes_with_the_topics_that_get_them() -> None:
    before = state_of(FIRST)
    before.step(Records.from_rows(ROWS), 0)
    after = state_of({"to": "all"}, FIRST)
    after.restore(before.snapshot(), before.stream_time)
    found = after.step(Records.from_rows([Row(b"b", b"x", 26, 4)]), 0)
    assert (emitted(found), found.stream_time) == ([("input", b"b", b"x", 26)], 30)
    again = state_of(FIRST)
    again.restore(after.snapshot(), after.stream_time)
    assert (again.stream_time, again.times()["first"].received) == (30, 5)
