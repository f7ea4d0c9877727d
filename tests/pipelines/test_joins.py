"""Joins behind other steps that hold state: their keys, their time, and the versions that their table keeps."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import sized
from tests.pipelines.test_rules import COUNTS, pipeline, problems, refused
from tidegate.contracts.config.operator_config import TableFacts
from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.event_time import NEVER
from tidegate.contracts.operator import OperatorState
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.testing.laws import Table

pytestmark = pytest.mark.fast

HOUR, MINUTE = 3_600_000, 60_000
JOIN = {"name": "joined", "kind": "stream_table_join", "table": "limits", "join": "left", "grace": "3ms"}
SLOW = {"name": "slow", "kind": "suppression", "until": {"time_limit": "4ms"}}
FEW = {"name": "few", "kind": "suppression", "buffer": {"max_keys": 2, "when_full": "emit"}}


def table(*rows: tuple[bytes, bytes, int]) -> OperatorState:
    """The table of these keys and values, each valid from its time on."""
    config = TableHistoryConfig.model_validate({"input": "limits", "history_retention": "30d"})
    return Table(config, tuple(Row(*row, at) for at, row in enumerate(rows))).state(0)


def opened(config: PipelineConfig) -> Any:
    """A partition of the pipeline."""
    operator = pipeline_of(config)
    return operator.open(MemoryStorage(operator.layout))


def records(*rows: tuple[bytes, int]) -> Records:
    return Records.from_rows([Row(key, b"v", time, at) for at, (key, time) in enumerate(rows)])


PRICED = {**JOIN, "name": "priced", "table": "prices", "grace": "5ms"}


def test_each_table_is_read_by_one_step() -> None:
    found = problems(JOIN, SLOW, {**JOIN, "name": "again"})
    assert found == {"steps.2": "step joined reads the table limits already"}
    assert pipeline(JOIN, SLOW, PRICED).reads() == (
        TableRead("limits", 3, None, "joined"),
        TableRead("prices", 5, None, "priced", has_own_time=True),
    )


def test_a_second_join_waits_and_needs_versions_with_its_own_time() -> None:
    #   joined   T 30   grace 3   its table is complete up to 10: a12 waits, so that its mark is 12
    #   priced   T 12   grace 5   a5 is held until 10; both tables keep versions for what is still to come
    state = opened(pipeline(JOIN, PRICED))
    state.read_table(table((b"a", b"1", 0)), 10, "limits")
    state.read_table(table((b"a", b"2", 0), (b"a", b"3", 7)), NEVER, "prices")
    result = state.step(records((b"a", 5), (b"a", 12), (b"b", 30)), 0)
    assert result.reader_time == {"limits": 30, "prices": 12}
    assert result.needs == {"limits": 12, "prices": 5}
    assert [result.measures[f"{step}.waiting_records_now"] for step in ("joined", "priced")] == [1, 1]
    state.read_table(table((b"a", b"2", 0), (b"a", b"3", 7)), name="prices")
    first = state.step(Records.from_rows([]), 0)
    state.read_table(table((b"a", b"1", 0)), name="limits")
    later = state.step(records((b"c", 60)), 0)
    assert [json.loads(row["value"]) for result in (first, later) for row in result.emissions.to_pylist()] == [
        {"stream": {"stream_bytes": "dg==", "table": 1}, "table": 2},
        {"stream": {"stream_bytes": "dg==", "table": 1}, "table": 3},
        {"stream": {"stream_bytes": "dg==", "table": None}, "table": None},
    ]


def test_a_pipeline_of_two_joins_goes_on_from_its_log_with_the_tables_that_it_has() -> None:
    config = pipeline(JOIN, PRICED)
    state, rebuilt = opened(config), opened(config)
    for each in (state, rebuilt):
        each.read_table(table((b"a", b"1", 0)), name="limits")
        each.read_table(table((b"a", b"2", 0)), NEVER, "prices")
    result = state.step(records((b"a", 5), (b"a", 30)), 0)
    assert {row["step"] for row in result.changes.to_pylist()} == {None, "joined", "priced"}
    rebuilt.restore(result.changes, result.stream_time)
    assert rebuilt.snapshot() == state.snapshot()
    assert [each.flush().emissions.num_rows for each in (state, rebuilt)] == [2, 2]


def test_fields_of_both_tables_and_of_the_stream_are_seen_behind_two_joins() -> None:
    value = {"json": {"amount": "int64"}}
    joins = [
        {**JOIN, "grace": "0ms", "emits": {"most": "int64"}},
        {**PRICED, "grace": "0ms", "emits": {"price": "float64"}},
    ]
    steps = [*joins, {"select": {"cost": "amount * prices.price", "most": "limits.most"}}]
    state = opened(pipeline(*steps, value=value))
    state.read_table(table((b"a", b'{"most": 9}', 0)), name="limits")
    state.read_table(table((b"a", b'{"price": 2.5}', 0), (b"b", b'{"price": 1}', 0)), name="prices")
    rows = [Row(key, b'{"amount": 4}', 5, at) for at, key in enumerate((b"a", b"b", b"c"))]
    found = state.step(Records.from_rows([*rows, Row(b"a", b'{"amount": "?"}', 6, 3)]), 0)
    assert [json.loads(row["value"]) for row in found.emissions.to_pylist()] == [
        {"cost": 10.0, "most": 9},
        {"cost": 4.0, "most": None},
        {"cost": None, "most": None},
    ]
    assert [row["cause"] for row in found.rejected.to_pylist()] == ["value: stream.amount is no int64"]


@pytest.mark.parametrize(
    ("stream", "versions", "cause"),
    [
        (b"bad", b'{"most": 9}', "value: not JSON"),
        (b"", b'{"most": 9}', "value: not JSON"),
        (b'{"amount": 1} and more', b'{"most": 9}', "value: not JSON"),
        (b"null", b'{"most": 9}', "value: null"),
        (b"[1]", b'{"most": 9}', "value: stream is no JSON object"),
        (b'{"amount": 1}', b"bad", "table: not JSON"),
        (b'{"amount": 1}', b"[1]", "value: table is no JSON object"),
    ],
)
def test_a_row_of_a_join_is_rejected_if_the_value_of_a_side_that_is_read_is_not_json(
    stream: bytes, versions: bytes, cause: str
) -> None:
    joined = {**JOIN, "grace": "0ms", "emits": {"most": "int64"}}
    either = {"with_columns": {"is_known": "amount > 0 or limits is null"}}
    state = opened(pipeline(joined, either, value={"json": {"amount": "int64"}}))
    state.read_table(table((b"a", versions, 0)), name="limits")
    found = state.step(Records.from_rows([Row(b"a", stream, 5, 0), Row(b"z", b'{"amount": 1}', 6, 1)]), 0)
    assert [row["cause"] for row in found.rejected.to_pylist()] == [cause]
    assert [row["value"] for row in found.emissions.to_pylist()] == [b'{"amount":1,"limits":null,"is_known":true}']


def test_a_step_that_reads_a_table_behind_others_has_its_own_time() -> None:
    first, behind = TableRead("limits", 3, None, "joined"), TableRead("limits", 3, None, "joined", has_own_time=True)
    assert pipeline(JOIN, SLOW).reads() == (first,)
    assert pipeline({"filter": "timestamp > 0"}, JOIN).reads() == (first,)
    assert pipeline(SLOW, {"filter": "timestamp > 0"}, JOIN).reads() == (behind,)
    branch = {**JOIN, "from": "input"}
    assert pipeline({**SLOW, "keep": True}, branch).reads() == (behind,), "the first step decides for the partition"


def test_results_of_windows_are_joined_by_the_plain_key_and_keep_their_windows() -> None:
    config = pipeline({**COUNTS, "emit": "final"}, JOIN)
    assert list(config.table_conflicts(TableFacts(30 * HOUR), "joined")) == []
    state = opened(config)
    state.read_table(table((b"a", b"2", 0), (b"a", b"7", HOUR)))
    found = state.step(records((b"a", 5), (b"a", 6), (b"a", HOUR + 7), (b"b", 9 * HOUR)), 0).emissions.to_pylist()
    assert [(row["key"], row["window_start"], json.loads(row["value"])) for row in found] == [
        (b"a", 0, {"stream": 2, "table": 2}),
        (b"a", HOUR, {"stream": 1, "table": 7}),
    ]


def test_what_a_join_behind_windows_holds_is_in_the_log_with_its_windows() -> None:
    config = pipeline({**COUNTS, "emit": "final"}, {**JOIN, "grace": "5h"})
    state, rebuilt = opened(config), opened(config)
    state.read_table(table((b"a", b"2", 0)))
    rebuilt.read_table(table((b"a", b"2", 0)))
    result = state.step(records((b"a", 5), (b"b", 2 * HOUR)), 0)
    assert [row["window_end"] for row in held(result.changes, "joined")] == [HOUR]
    rebuilt.restore(result.changes, result.stream_time)
    assert rebuilt.snapshot() == state.snapshot()


def test_what_a_join_of_windowed_input_holds_is_in_the_log_with_its_windows() -> None:
    config = pipeline({**JOIN, "grace": "5h"}, SLOW, windows="headers")
    state, rebuilt = opened(config), opened(config)
    windows = encode_headers([(b"tidegate-window-start", b"0"), (b"tidegate-window-end", b"10")])
    result = state.step(Records.from_rows([Row(b"a", b"v", 5, 0, windows)]), 0)
    [row] = held(result.changes, "joined")
    assert (row["window_start"], row["window_end"]) == (0, 10)
    rebuilt.restore(result.changes, result.stream_time)
    assert rebuilt.snapshot() == state.snapshot()


def held(changes: pa.Table, step: str) -> list[dict[str, Any]]:
    return [row for row in changes.to_pylist() if row["step"] == step]


def test_the_time_of_the_step_that_reads_the_table_is_its_own() -> None:
    #   slow     T   5    30        holds a5 until 9
    #   joined   T        26        T 30 less the limit
    state = opened(pipeline(SLOW, JOIN))
    state.read_table(table(), NEVER)
    result = state.step(records((b"a", 5), (b"b", 30)), 0)
    assert (result.stream_time, result.reader_time) == (30, {"limits": 26})
    assert opened(pipeline(SLOW)).step(records((b"a", 5)), 0).reader_time == {}


def test_the_table_keeps_versions_for_what_steps_before_the_join_hold() -> None:
    #   few      a50 b60 c70 b10    c is one too many: a50 leaves; c70 is held, and b10 in the place of b60
    #   joined   T 50, grace 3
    state = opened(pipeline(FEW, JOIN))
    state.read_table(table(), NEVER)
    result = state.step(records((b"a", 50), (b"b", 60), (b"c", 70), (b"b", 10)), 0)
    assert (result.reader_time, result.needs) == ({"limits": 50}, {"limits": 10})


@sized(60)
@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 40)), max_size=6), max_size=3),
    flushed=st.booleans(),
)
def test_a_flush_through_a_join_that_holds_records_is_undone(batches: list[Any], flushed: bool) -> None:
    state, offset = opened(pipeline(SLOW, JOIN)), 0
    state.read_table(table((b"a", b"1", 0)), NEVER)
    for batch in batches:
        rows = [Row(key, b"v", time, offset + at) for at, (key, time) in enumerate(batch)]
        state.step(Records.from_rows(rows), 0)
        offset += len(rows)
        before, times = state.snapshot(), state.times()
        undo = (state.flush(0) if flushed else state.advance(50)).undo
        state.restore(undo, times["slow"].stream_time)
        assert (state.snapshot(), state.times()) == (before, times)


def test_the_table_keeps_versions_for_what_a_join_before_the_join_holds() -> None:
    #   joined   T 30   a5 waits for its table
    #   merged   a5 and b30 have come through the other branch
    #   priced   T 30   grace 5
    first = {"name": "first", "kind": "deduplicate", "within": "1h", "grace": "1h"}
    flat, other = {"name": "flat", "select": {"n": "1"}}, {"name": "other", "from": "first", "select": {"n": "2"}}
    state = opened(pipeline(first, JOIN, flat, other, {**PRICED, "from": ["flat", "other"]}))
    state.read_table(table(), NEVER, "limits")
    state.read_table(table(), name="prices")
    result = state.step(records((b"a", 5), (b"b", 30)), 0)
    assert (result.reader_time["prices"], result.needs["prices"]) == (30, 5)


def test_the_table_keeps_versions_for_what_a_step_may_still_accept() -> None:
    #   per_hour   T 70 min: the hour from 0:00 on closes; what began later is still to come
    #   joined     T 59 min, grace 3 ms
    state = opened(pipeline({**COUNTS, "emit": "final"}, JOIN))
    state.read_table(table())
    result = state.step(records((b"a", 59 * MINUTE), (b"b", 70 * MINUTE)), 0)
    assert (result.reader_time, result.needs) == ({"limits": 59 * MINUTE}, {"limits": 0})


def test_rows_that_reach_a_join_in_an_idle_advance_wait_from_the_clock_of_that_batch_on() -> None:
    #   slow     a5, then an advance to 30 at clock 1,000: a5 reaches the join, and the table is behind
    state = opened(pipeline(SLOW, {**JOIN, "wait_for_table": "100ms"}))
    state.read_table(table(), NEVER)
    state.step(records((b"a", 5)), 900)
    assert state.advance(30, 1_000).counts.held == 1
    assert state.step(Records.from_rows([]), 1_099).emissions.num_rows == 0
    assert state.step(Records.from_rows([]), 1_100).emissions.num_rows == 1


def test_a_step_that_reads_a_table_does_not_come_to_a_pipeline_that_holds_records() -> None:
    assert refused(pipeline(SLOW), pipeline(SLOW, JOIN)) == [
        "it would read a table that the log's batches have not read"
    ]
