"""The load that all benchmarks share is what it says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.load import FIRST_TIMESTAMP, LATENESS_MS, columns, load
from tidegate.devkit.embedded_broker import Broker
from tidegate.devkit.produce_consume import read_all


@pytest.mark.broker
def test_every_record_occurs_once_and_a_key_stays_in_its_partition(broker: Broker) -> None:
    assert load(broker.bootstrap, "benchmark-load", records=5_000, keys=100, partitions=3) == 5_000
    found = read_all({"bootstrap.servers": broker.bootstrap}, "benchmark-load")
    keys = [{key for key, _, _ in rows} for rows in found]
    assert set.union(*keys) == {b"k%06d" % number for number in range(100)}
    assert sum(map(len, keys)) == 100
    ids = [[json.loads(value or b"")["id"] for _, value, _ in rows] for rows in found]
    assert all(part == sorted(part) for part in ids)
    assert sorted(number for part in ids for number in part) == list(range(5_000))
    expected = columns(5_000, 100, 500)[1]
    assert all(timestamp == expected[json.loads(value or b"")["id"]] for rows in found for _, value, timestamp in rows)


@pytest.mark.fast
def test_timestamps_are_out_of_order_by_less_than_the_lateness() -> None:
    _, timestamp = columns(100_000, 10, 10_000)
    behind = np.maximum.accumulate(timestamp) - timestamp
    assert 0.9 * LATENESS_MS < behind.max() < LATENESS_MS
    assert timestamp.min() > FIRST_TIMESTAMP - LATENESS_MS


@pytest.mark.fast
def test_times_are_spread_over_the_span() -> None:
    _, timestamp = columns(1_000, 10, 60_000)
    assert 60_000 - LATENESS_MS <= timestamp.max() - FIRST_TIMESTAMP < 60_000
