"""Every metric that KIP-328 requires, by name, of suppression and of windows with final results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.operators.suppression.partitions import opened, records
from tests.runtime.telemetry.test_batch_metrics import meta
from tidegate.contracts.operator import OperatorState, StepResult
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig
from tidegate.runtime.telemetry.batch_metrics import metrics_of

pytestmark = pytest.mark.fast


def windows(window: dict[str, Any], **more: Any) -> OperatorState:
    raw = {"input": "in", "window": window, "aggregate": {"count": True}, "emit": "final"} | more
    operator = WindowedAggregation(WindowedAggregationConfig.model_validate(raw))
    return operator.open(MemoryStorage(operator.layout))


def reported(*batches: StepResult) -> dict[str, Any]:
    """The metrics after those batches of one partition, two seconds apart."""
    metas = [
        meta(number, 2_000 * number, {0: batch.counts}, {0: dict(batch.measures)})
        for number, batch in enumerate(batches)
    ]
    return metrics_of(metas).report()


def test_windows_have_each_metric() -> None:
    """Windows of 10 that close 5 after their end; one of them in memory, the others on disk.

    batch 1    a 1   a 2   b 3
    batch 2                          a 20 (what was due at 15 leaves)   a 1 (late by 19)
    """
    state = windows({"tumbling": "10ms", "grace": "5ms"}, buffer={"max_keys": 1, "when_full": "spill"})
    first = state.step(records(("a", "x", 1), ("a", "x", 2), ("b", "x", 3)), 0)
    report = reported(first, state.step(records(("a", "x", 20), ("a", "x", 1), first=3), 0))
    of_one = len("a") + 16 + 8
    expected = {
        "lateness_avg": 19 / 5,
        "lateness_max": 19,
        "late": 1,
        "late_rate": 1 / 2,
        "memory_records_now": 1,
        "memory_records_avg": 1,
        "memory_records_max": 1,
        "memory_bytes_now": of_one,
        "memory_bytes_avg": of_one,
        "memory_bytes_max": of_one,
        "disk_records_now": 0,
        "disk_records_avg": 1 / 2,
        "disk_records_max": 1,
        "disk_bytes_now": 0,
        "disk_bytes_avg": of_one / 2,
        "disk_bytes_max": of_one,
        "suppressed": 1,
        "suppressed_rate": 1 / 2,
        "overtime_min": 5,
        "overtime_avg": 5,
    }
    assert {name: report[name] for name in expected} == expected
    rates_and_averages = [name for name in expected if name.endswith(("_rate", "_avg"))]
    assert {name: report[f"{name}_60s"] for name in rates_and_averages} == {
        name: expected[name] for name in rates_and_averages
    }


def test_suppression_has_each_metric() -> None:
    """The oldest of more than one key is evicted at once.

    a 1   a 2   b 3 (evicts a)   b 20 (b was due at 13)   a 1 (late by 19)
    """
    state = opened(until={"time_limit": "10ms"}, buffer={"max_keys": 1, "when_full": "emit"}, max_lateness="5ms")
    first = state.step(records(("a", "1", 1), ("a", "2", 2), ("b", "3", 3)), 0)
    report = reported(first, state.step(records(("b", "4", 20), ("a", "5", 1), first=3), 0))
    expected = {
        "lateness_avg": 19 / 5,
        "lateness_max": 19,
        "late": 1,
        "late_rate": 1 / 2,
        "memory_records_now": 0,
        "memory_records_avg": 1 / 2,
        "memory_records_max": 1,
        "memory_bytes_now": 0,
        "memory_bytes_avg": 1 / 2,
        "memory_bytes_max": 1,
        "superseded": 2,
        "superseded_rate": 1,
        "emitted_keys": 1,
        "emitted_keys_rate": 1 / 2,
        "emitted_bytes": 0,
        "emitted_bytes_rate": 0,
        "overtime_min": 7,
        "overtime_avg": 7,
    }
    assert {name: report[name] for name in expected} == expected
    assert not [name for name in report if name.startswith("disk_")]


@many
@given(
    records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30),
    kind=st.sampled_from(["tumbling", "session"]),
    emit=st.sampled_from(["final", "on_time"]),
)
def test_every_update_of_a_window_is_emitted_suppressed_or_pending(
    records: list[tuple[str, int]], kind: str, emit: str
) -> None:
    state = windows({kind: "7ms", "grace": "9ms"}, emit=emit)
    result = state.step(_rows(records), 0)
    waiting = sum(row["phase"] == 0 for row in state.snapshot().to_pylist())
    told = sum(result.measures[f"emitted_{cause}"] for cause in ("on_time", "window_close"))
    assert result.counts.applied == told + result.measures["suppressed"] + waiting


def _rows(given: list[tuple[str, int]]) -> Any:
    return records(*((key, "x", timestamp) for key, timestamp in given))
