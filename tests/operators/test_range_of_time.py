"""Timestamps and durations have one range: values outside are rejected or refused, and inside no sum overflows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.operator import OperatorState
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.registry import operator_for
from tidegate.operators.stream_table_join import StreamTableJoinConfig
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.operators.windowed_aggregation import WindowedAggregationConfig

pytestmark = pytest.mark.fast

LONGEST = f"{MAX_TIME}ms"
TUMBLING = {"window": {"tumbling": "10ms", "grace": 0}, "emit": "final"}
CONFIGS: dict[str, tuple[type[OperatorConfig], dict[str, Any]]] = {
    "suppression": (SuppressionConfig, {"until": {"time_limit": "5ms"}}),
    "table_history": (TableHistoryConfig, {"history_retention": "5ms"}),
    "stream_table_join": (StreamTableJoinConfig, {"table": "table", "join": "left"}),
    "windows": (WindowedAggregationConfig, TUMBLING | {"aggregate": {"count": True}}),
    "elements": (WindowedAggregationConfig, TUMBLING | {"aggregate": {"collect": True}}),
}


def opened(kind: str, **more: Any) -> OperatorState:
    model, raw = CONFIGS[kind]
    operator = operator_for(read(model, {"input": "in"} | raw | more))
    return operator.open(MemoryStorage(operator.layout))


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "stream_table_join"])
def test_a_record_beyond_the_range_is_rejected_by_every_operator_and_moves_no_time(kind: str) -> None:
    state = opened(kind)
    times = [5, MAX_TIME + 1, 2**62, 2**63 - 1]
    result = state.step(Records.from_rows(Row(b"k", b"1", time, at) for at, time in enumerate(times)), 0)
    assert [(row["timestamp"], row["cause"], row["bound"]) for row in result.rejected.to_pylist()] == [
        (time, "timestamp out of range", MAX_TIME) for time in times[1:]
    ]
    assert state.stream_time == 5
    assert state.step(Records.from_rows([Row(b"k", b"1", MAX_TIME, 9)]), 0).stream_time == MAX_TIME


@pytest.mark.parametrize("kind", CONFIGS)
def test_an_idle_advance_stays_within_the_range_of_time(kind: str) -> None:
    assert opened(kind).advance(2**63 - 1).stream_time == MAX_TIME


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("number", [MAX_TIME + 1, -MAX_TIME - 1])
def test_a_timestamp_in_the_value_has_the_same_range(kind: str, number: int) -> None:
    state = opened(kind, timestamp={"field": "at"})
    (row,) = state.step(Records.from_rows([Row(b"k", b'{"at":%d}' % number, 7, 0)]), 0).rejected.to_pylist()
    assert (row["cause"], state.stream_time) == ("no timestamp: out of range", -1)


@pytest.mark.parametrize(
    ("start", "end", "taken"),
    [
        (0, 2 * MAX_TIME, True),
        (MAX_TIME, 2 * MAX_TIME, True),
        (0, 2**63 - 1, True),
        (0, 2 * MAX_TIME + 1, False),
        (MAX_TIME + 1, MAX_TIME + 2, False),
    ],
    ids=["the longest window", "the last one", "one that never ends", "an end beyond", "a start beyond"],
)
def test_the_window_in_a_record_s_headers_has_a_range(start: int, end: int, taken: bool) -> None:
    block = [(HEADER_WINDOW_START.encode(), b"%d" % start), (HEADER_WINDOW_END.encode(), b"%d" % end)]
    state = opened("suppression", until="window_close", grace=LONGEST)
    result = state.step(Records.from_rows([Row(b"k", b"1", 5, 0, encode_headers(block))]), 0)
    causes = result.rejected["cause"].to_pylist()
    assert causes == (
        [] if taken else ["no window: its start and end do not form an interval within the range of time"]
    )
    assert state.flush().counts.emitted == taken


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("suppression", {"until": {"time_limit": "2305843009213693953ms"}}),
        ("suppression", {"until": "window_close", "grace": "26687998949d"}),
        ("suppression", {"max_ahead": "9223372036854775807ms"}),
        ("table_history", {"history_retention": "P99999999999D"}),
        ("windows", {"window": {"tumbling": "10ms", "grace": "9223372036854775807ms"}}),
        ("windows", {"window": {"session": "2305843009213693953ms", "grace": 0}}),
        ("windows", {"retention": "9223372036854775807ms"}),
        ("windows", {"idle_after": "9223372036854775807ms"}),
    ],
)
def test_a_longer_duration_is_refused_with_the_longest_one(kind: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        opened(kind, **more)
    (problem,) = refused.value.problems
    assert "too long" in problem.cause
    assert problem.remedy == "write at most 2305843009213693952ms (2^61)"


@pytest.mark.parametrize(
    "more",
    [
        {"buffer": {"max_keys": 2**63, "when_full": "spill"}},
        {"buffer": {"max_bytes": 2**63, "when_full": "spill"}},
        {"aggregate": {"collect": True}, "emit": None, "every": 2**63},
        {"aggregate": {"collect": True}, "evictor": {"count": 2**63}},
    ],
)
def test_a_number_too_large_for_its_array_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"9223372036854775807"):
        opened("windows", **more)


@pytest.mark.parametrize("emit", ["updates", "on_time", "final"])
@pytest.mark.parametrize(
    ("window", "aggregate"),
    [
        *itertools.product(
            [
                {"session": LONGEST},
                {"tumbling": LONGEST},
                {"hopping": LONGEST, "advance": LONGEST},
                {"tumbling": "1ms"},
            ],
            [{"count": True}, {"collect": True}],
        )
    ],
)
def test_the_longest_window_with_the_longest_grace_accepts_the_first_and_the_last_record(
    window: dict[str, str], aggregate: dict[str, bool], emit: str
) -> None:
    state = opened("windows", window=window | {"grace": LONGEST}, aggregate=aggregate, emit=emit)
    rows = (Row(b"k", b"1", time, at) for at, time in enumerate((0, MAX_TIME, 0, MAX_TIME)))
    result = state.step(Records.from_rows(rows), 0)
    assert (result.counts.applied, result.stream_time) == (4, MAX_TIME)
    assert state.flush().counts.held == state.snapshot().num_rows > 0
