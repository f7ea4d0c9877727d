"""Windowed keys are written and read in Kafka Streams' format; recorded by `tests.oracle.record`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle.record import VECTORS
from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.records import Records, Row
from tidegate.kernels import window_keys
from tidegate.kernels.payloads import flat_records

pytestmark = pytest.mark.fast

RECORDED = [json.loads(line) for line in VECTORS.read_text().splitlines()]


def in_range(line: dict[str, Any]) -> bool:
    return bool(line["start"] <= MAX_TIME)


def recorded(
    windows: str, within: Callable[[dict[str, Any]], bool] = lambda line: True
) -> tuple[list[bytes], np.ndarray, np.ndarray, list[bytes]]:
    """Keys, starts, ends, and the bytes that Kafka Streams made of them."""
    lines = [line for line in RECORDED if line["windows"] == windows and within(line)]
    keys, written = ([bytes.fromhex(line[name]) for line in lines] for name in ("key", "bytes"))
    start, end = (np.array([line[name] for line in lines], np.int64) for name in ("start", "end"))
    return keys, start, end, written


def keys_of(batch) -> list[bytes]:
    spans = zip(batch.key_start, batch.key_length, strict=True)
    return [batch.data[start : start + length].tobytes() for start, length in spans]


@pytest.mark.parametrize("windows", ["time", "session"])
def test_keys_are_written_in_the_format_of_kafka_streams(windows) -> None:
    keys, start, end, written = recorded(windows)
    assert len(written) > 40
    made = window_keys.kafka_keys(pa.array(keys, pa.binary()), start, end if windows == "session" else None)
    assert made.to_pylist() == written


def test_keys_of_sessions_are_read_as_kafka_streams_reads_them() -> None:
    keys, start, end, written = recorded("session", in_range)
    batch, bounds = window_keys.split_kafka_keys(
        flat_records(Records.from_rows(Row(key, b"", 0, 0) for key in written)), None
    )
    assert keys_of(batch) == keys
    assert (bounds.start.tolist(), bounds.end.tolist(), bounds.code.any()) == (start.tolist(), end.tolist(), False)


def test_keys_of_time_windows_are_read_with_the_configured_size() -> None:
    lines = sorted(zip(*recorded("time", in_range), strict=True), key=lambda line: line[2] - line[1])
    for size, group in groupby(lines, key=lambda line: line[2] - line[1]):
        keys, start, end, written = zip(*group, strict=True)
        batch = flat_records(Records.from_rows(Row(key, b"", 0, 0) for key in written))
        batch, bounds = window_keys.split_kafka_keys(batch, int(size))
        assert keys_of(batch) == list(keys)
        assert (bounds.start.tolist(), bounds.end.tolist()) == (list(start), list(end))


@pytest.mark.parametrize("start", [-1, MAX_TIME + 1, 2**63 - 1])
def test_windows_that_start_outside_of_the_range_of_time_are_invalid(start) -> None:
    rows = [Row(b"a" + start.to_bytes(8, "big", signed=True), b"", 0, 0)]
    assert window_keys.split_kafka_keys(flat_records(Records.from_rows(rows)), MAX_TIME)[1].code.tolist() == [
        window_keys.BAD_BOUNDS
    ]


def test_null_keys_stay_null_both_ways() -> None:
    batch, bounds = window_keys.split_kafka_keys(flat_records(Records.from_rows([Row(None, b"", 0, 0)])), 10)
    assert (batch.key_length.tolist(), bounds.code.tolist()) == ([-1], [0])
    zero = np.zeros(1, np.int64)
    assert window_keys.kafka_keys(pa.array([None], pa.binary()), zero, zero).to_pylist() == [None]
