"""Emissions as records of the output topic."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle.record import VECTORS
from tidegate.contracts.config.operator_config import Output
from tidegate.contracts.records import Int64s
from tidegate.kernels.record_format.record_batch import OutgoingColumns, Stamp
from tidegate.runtime.publishing.encoding import Destination, outgoing
from tidegate.runtime.publishing.topics import Outlets, OutputRoute

pytestmark = pytest.mark.fast

RECORDED = [json.loads(line) for line in VECTORS.read_text().splitlines()]


def sent(windows, lines) -> tuple[OutgoingColumns, Stamp]:
    """What is sent of the emissions of these windows."""
    count = len(lines)
    rows = pa.table(
        {
            "key": pa.array([bytes.fromhex(line["key"]) for line in lines], pa.binary()),
            "value": pa.array([b"1"] * count, pa.binary()),
            "headers": pa.nulls(count, pa.binary()),
            "timestamp": pa.array(range(count), pa.int64()),
            "cause": pa.array(["update"] * count),
            "window_start": pa.array([line["start"] for line in lines], pa.int64()),
            "window_end": pa.array([line["end"] for line in lines], pa.int64()),
        }
    )
    to = Destination(
        route=OutputRoute(
            operator="counts",
            input="in",
            group="g",
            outlets=Outlets((Output("out"),), None),
            limits={"out": 2**20},
            times_in_values=False,
        ),
        partition=0,
        batch=1,
    )
    return outgoing(to, rows, Output("out", windows=windows), np.arange(count))


def bounds(stamp: Stamp) -> tuple[list[int], list[int]] | None:
    windows: tuple[Int64s, Int64s] | None = stamp.windows
    return None if windows is None else (windows[0].tolist(), windows[1].tolist())


@pytest.mark.parametrize("windows", ["time", "session"])
def test_kafka_s_bytes_of_windows_are_those_of_kafka_streams_and_no_headers_are_added(windows) -> None:
    lines = [line for line in RECORDED if line["windows"] == windows]
    columns, stamp = sent(windows, lines)
    assert [key.hex() for key in columns.key.to_pylist()] == [line["bytes"] for line in lines]
    assert bounds(stamp) is None


def test_windows_are_added_as_headers_or_left_as_the_record_has_them() -> None:
    columns, stamp = sent("headers", RECORDED[:2])
    assert [key.hex() for key in columns.key.to_pylist()] == [line["key"] for line in RECORDED[:2]]
    assert bounds(stamp) == ([line["start"] for line in RECORDED[:2]], [line["end"] for line in RECORDED[:2]])
    columns, stamp = sent(None, RECORDED[:2])
    assert bounds(stamp) is None
