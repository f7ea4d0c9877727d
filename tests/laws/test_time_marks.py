"""What a step passes on of time: marks among its results, and what rows do that only pass their time on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.operator import OperatorState, StepResult, TableReader
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import kind_of, kinds, operator_for

pytestmark = pytest.mark.fast

OPTIONS: dict[str, dict[str, Any]] = {
    "suppression": {"until": {"time_limit": "5ms"}},
    "deduplicate": {"within": "5ms", "grace": "1s"},
    "windowed_aggregation": {"window": {"tumbling": "10ms", "grace": 0}, "aggregate": {"count": True}, "emit": "final"},
    "stream_table_join": {"table": "facts", "join": "left", "grace": "5ms"},
    "table_history": {"history_retention": "1s"},
    "stream_stream_join": {"right": "others", "join": "left", "before": 0, "after": "5ms", "grace": "5ms"},
    "pipeline": {"steps": [{"name": "held", "kind": "suppression", "until": {"time_limit": "5ms"}}]},
}


def opened(kind: str, **more: Any) -> OperatorState:
    """A new state of an operator of that kind."""
    operator = operator_for(read(kind_of(kind).config, {"kind": kind, "input": "in"} | OPTIONS[kind] | more))
    return operator.open(MemoryStorage(operator.layout))


def sequence(result: StepResult, hold: int) -> list[Any]:
    """The results of a batch and the marks, in order: a timestamp for a result, [time] for a mark."""
    assert result.passage is not None
    found: list[Any] = result.emissions["timestamp"].to_pylist()
    marks = result.passage.marks(hold)
    for at, time in reversed(list(zip(marks.at.tolist(), marks.time.tolist(), strict=True))):
        found.insert(at, [time])
    return found


def records(*times: int) -> Records:
    return Records.from_rows(Row(b"%d" % time, b"v", time, at) for at, time in enumerate(times))


def test_the_results_that_a_record_causes_come_before_its_mark() -> None:
    #   in    9        10       14     16            20            time limit 5
    #   out     [4]       [5]      9 [9]    10 [11]      14 [15]
    found = sequence(opened("suppression").step(records(9, 10, 14, 16, 20), 0), 5)
    assert [each for each in found if each not in ([8], [13])] == [[4], [5], 9, [9], 10, [11], 14, [15]]


@pytest.mark.parametrize(
    ("kind", "hold", "passed"),
    [
        # in    10      16            17             40         time limit 5: 16 is due at 21
        ("suppression", 5, [[5], [9], 10, [11], [12], [15], 16, [16], 17, [35]]),
        # in    10   16   17   40                               windows of 10 ms: [10, 20) is due at 20
        ("windowed_aggregation", 10, [[0], [6], [7], [9], 10, 16, 17, [30]]),
    ],
)
def test_before_a_result_that_time_releases_a_mark_passes_the_time_until_then(
    kind: str, hold: int, passed: list[Any]
) -> None:
    assert sequence(opened(kind).step(records(10, 16, 17, 40), 0), hold) == passed


def test_records_that_waited_for_their_table_leave_behind_marks_of_their_own_times() -> None:
    #   in    10   12   13   40                grace 5; the table is complete up to 9, then for ever
    #   out                      [10] 10 [12] 12 [13] 13 [35]
    state = opened("stream_table_join")
    table = opened("table_history")
    cast(TableReader, state).read_table(table, 9)
    held = state.step(records(10, 12, 13, 40), 0)
    assert sequence(held, 5) == [[5], [7], [8], [10]]
    cast(TableReader, state).read_table(table)
    assert sequence(state.step(records(), 0), 5) == [[10], 10, [12], 12, [13], 13, [35]]


def test_each_record_that_moves_time_has_a_mark_and_others_have_none() -> None:
    #   in    10    7     12     12
    #   out   [10]        [12]
    assert sequence(opened("deduplicate").step(records(10, 7, 12, 12), 0), 0) == [10, [10], 7, 12, [12]]


def test_an_idle_advance_passes_on_a_mark_behind_its_results() -> None:
    state = opened("suppression")
    state.step(records(10), 0)
    assert sequence(state.advance(20), 5) == [[9], 10, [15]]


def test_a_step_without_a_time_limit_passes_no_marks_on() -> None:
    bounded = read(
        kind_of("suppression").config,
        {"kind": "suppression", "input": "in", "buffer": {"max_keys": 1, "when_full": "emit"}},
    )
    assert bounded.hold(None) is None
    result = opened("suppression").step(records(10, 20), 0)
    assert result.passage is not None
    assert len(result.passage.marks(None).at) == 0


@pytest.mark.parametrize("kind", kinds())
def test_a_row_that_only_passes_its_time_on_moves_time_and_is_counted_nowhere(kind: str) -> None:
    state = opened(kind)
    result = state.step(Records.from_rows([Row(None, None, 7, 0, time_only=True)]), 0)
    assert state.stream_time == 7
    assert result.counts.records_in == 0
    assert result.rejected.num_rows == result.late.num_rows == 0
    where_steps_stand = 1 if kind == "pipeline" else 0
    assert result.changes.num_rows == where_steps_stand


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("time", [-1, 2**61 + 1, 30])
def test_a_time_at_which_a_record_would_be_rejected_moves_nothing(kind: str, time: int) -> None:
    state = opened(kind, max_ahead="10ms")
    state.step(Records.from_rows([Row(b"k", b"v", time, 0, time_only=True)]), 12)
    assert state.stream_time == -1
