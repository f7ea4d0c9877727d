"""Bad input and bad days of windows. What is no number: test_aggregates; what cannot be configured: test_config."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import WHOLE, many
from tidegate.contracts.errors import BufferFull
from tidegate.contracts.records import Row
from tidegate.operators.testing.driver import Driver
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig
from tidegate.operators.windowed_aggregation.reference import Reference

pytestmark = pytest.mark.fast

YEAR_MS = 365 * 86_400_000


def config(window: dict[str, Any], **more: Any) -> WindowedAggregationConfig:
    return WindowedAggregationConfig.model_validate(
        {"input": "in", "window": window, "aggregate": {"count": True}, "emit": "final"} | more
    )


def driver(window: dict[str, Any], *, clock_ms: int = 0, **more: Any) -> Driver:
    return Driver(WindowedAggregation(config(window, **more)), clock_ms=clock_ms)


def test_the_windows_of_a_stopped_stream_close_by_the_idle_policy() -> None:
    tested = driver({"tumbling": "10ms", "grace": "5ms"}, idle_after="1s")
    tested.pipe("a", "x", 1)
    assert tested.advance(14) == []
    assert [(told.key, told.value, told.cause) for told in tested.advance(15)] == [(b"a", b"1", "idle")]
    assert tested.pipe("a", "x", 2) == []
    assert [row["timestamp"] for row in tested.late] == [2]


def test_a_record_years_ahead_is_rejected_and_closes_no_window() -> None:
    tested = driver({"tumbling": "10ms", "grace": 0}, max_ahead="1d", clock_ms=1_000)
    tested.pipe("a", "x", 1)
    assert tested.pipe("b", "x", 5 * YEAR_MS) == []
    assert [(row["key"], row["bound"]) for row in tested.rejected] == [(b"b", 86_401_000)]
    assert (tested.stream_time, len(tested.held())) == (1, 1)


def test_a_session_that_never_pauses_takes_no_more_space_than_one_record() -> None:
    tested = driver({"session": "10ms", "grace": 0})
    tested.pipe("a", "x", 0)
    first = {name: len(value) for name, value in tested.held()[0].items() if isinstance(value, bytes)}
    for timestamp in range(5, 500, 5):
        assert tested.pipe("a", "x", timestamp) == []
    (held,) = tested.held()
    assert (held["value"], held["window_start"], held["window_end"]) == (b"100", 0, 495)
    assert {name: len(held[name]) for name in first if name != "value"} | {"value": 1} == first


def test_a_session_longer_than_its_bound_is_an_error_before_the_record_that_makes_it_so() -> None:
    """a 0 . . 8 . . 16 (would be 16 long)      with a larger bound it goes on there"""
    tested = driver({"session": "10ms", "grace": 0, "max_length": "15ms"})
    tested.pipe("a", "x", 0)
    tested.pipe("a", "x", 8)
    with pytest.raises(BufferFull, match=r"window\.max_length") as stopped:
        tested.pipe("a", "x", 16)
    assert stopped.value.value == "offset 2"
    assert [row["window_end"] for row in tested.held()] == [8]
    wider = tested.restarted(driver({"session": "10ms", "grace": 0, "max_length": "16ms"}).operator)
    wider.pipe("a", "x", 16)
    assert [(row["window_start"], row["window_end"], row["value"]) for row in wider.held()] == [(0, 16, b"3")]


@many
@given(
    records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=20),
    longest=st.integers(1, 20),
    emit=st.sampled_from(["final", "updates"]),
)
def test_the_operator_stops_before_the_first_record_that_makes_a_session_too_long(
    records: list[tuple[str, int]], longest: int, emit: str
) -> None:
    rules = config({"session": "6ms", "grace": "9ms", "max_length": f"{longest}ms"}, emit=emit)
    reference, tested = Reference(rules), Driver(WindowedAggregation(rules))
    for offset, (key, timestamp) in enumerate(records):
        reference.process(Row(key.encode(), b"x", timestamp, offset), 0)
        if reference.stopped_at is not None:
            with pytest.raises(BufferFull):
                tested.pipe(key, "x", timestamp)
            return
        tested.pipe(key, "x", timestamp)


BYTES_PER_WINDOW = 400
WINDOWS = 1_000_000 if WHOLE else 250_000
PROGRAM = """
import re
import sys
from pathlib import Path
import numpy as np
from tidegate.contracts.records import Records
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.windowed_aggregation import WindowedAggregationConfig, WindowedAggregation

def records(first, count, timestamp):
    keys = np.arange(first, first + count, dtype=np.int64)
    place, none = 8 * np.arange(count), np.zeros(count, np.int64)
    return Records(
        data=keys.view(np.uint8), offset=keys, timestamp=np.full(count, timestamp),
        key_start=place, key_length=none + 8, value_start=none, value_length=none,
        headers_start=none, headers_length=none,
    )

def memory(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

raw = {"input": "in", "window": {"tumbling": "1h", "grace": 0}, "aggregate": {"count": True}, "emit": "final"}
operator = WindowedAggregation(WindowedAggregationConfig.model_validate(raw))
state = operator.open(MemoryStorage(operator.layout))
for first in range(0, int(sys.argv[1]), 50_000):
    state.step(records(first, 50_000, 1), 0)
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
result = state.step(records(int(sys.argv[1]), 1, 3_600_000), 0)
print("closed", result.counts.emitted, "held", result.counts.held, "peak", memory("VmHWM") - before)
"""


@pytest.mark.process
def test_many_windows_that_close_at_once_are_emitted_in_bounded_memory() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = [sys.executable, "-c", PROGRAM, str(WINDOWS)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    closed, held, peak = map(int, re.findall(r"\d+", done.stdout))
    assert (closed, held) == (WINDOWS, 1)
    assert 0 < peak < BYTES_PER_WINDOW * closed
