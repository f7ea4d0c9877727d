"""Metrics are a function of the commits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metadata import described, small_meta
from tidegate.contracts.batch_metadata import Counts
from tidegate.runtime.batch_loop.next_metadata import after_batch
from tidegate.runtime.task.messages import PartitionResult
from tidegate.runtime.telemetry.batch_metrics import (
    RECENT_MS,
    Metrics,
    merge_batches,
    merge_partitions,
    metrics_of,
)

pytestmark = pytest.mark.fast


def meta(batch, clock, counts, measures=None):
    said = {"operator": "updates", "batch": batch, "clock": clock, "input": "in"}
    return small_meta(**said, counts=counts, measures=measures or {})


def test_rates_are_reported_since_the_start_and_over_the_last_60_seconds():
    """0 s: 100 records --- 100 s: 300 records --- 160 s: 60 records"""
    report = metrics_of(
        [
            meta(1, 0, {0: Counts(records_in=100, applied=100)}),
            meta(2, 100_000, {0: Counts(records_in=300, applied=300)}),
            meta(3, 160_000, {0: Counts(records_in=60, applied=60)}),
        ]
    ).report()
    assert report["records_in"] == 460
    assert report["records_in_rate"] == 460 / 160
    assert report["records_in_rate_60s"] == 360 / 60


def test_the_held_count_is_the_newest_of_every_partition():
    report = metrics_of(
        [
            meta(1, 0, {0: Counts(held=5, held_bytes=50), 1: Counts(held=7, held_bytes=70)}),
            meta(2, 1, {0: Counts(held=2, held_bytes=20)}),
        ]
    ).report()
    assert (report["held"], report["held_bytes"]) == (9, 90)
    assert (report["held_max"], report["held_bytes_max"]) == (12, 120)
    assert report["held_avg"] == (12 + 9) / 2


def test_measures_add_up_or_keep_their_extremes_by_name():
    one = {"lateness_sum": 5, "lateness_max": 5, "overtime_min": 3, "held_now": 8}
    other = {"lateness_sum": 2, "lateness_max": 2, "overtime_min": 1, "held_now": 4, "new": 1}
    merged = {"lateness_sum": 7, "lateness_max": 5, "overtime_min": 1, "new": 1}
    assert merge_batches(one, other) == {**merged, "held_now": 4}
    assert merge_partitions(one, other) == {**merged, "held_now": 12}


def test_an_average_is_the_sum_over_its_count():
    report = metrics_of(
        [meta(1, 0, {}, {0: {"lateness_sum": 6, "lateness_count": 2}, 1: {"lateness_sum": 4, "lateness_count": 3}})]
    ).report()
    assert report["lateness_avg"] == 2


def test_averages_are_reported_since_the_start_and_over_the_last_60_seconds():
    """0 s: 2 records of lateness 10, 4 held --- 100 s: one in time, 1 held"""
    first = {"lateness_sum": 20, "lateness_count": 2, "memory_records_now": 4}
    last = {"lateness_sum": 0, "lateness_count": 1, "memory_records_now": 1}
    report = metrics_of([meta(1, 0, {}, {0: first}), meta(2, 100_000, {}, {0: last})]).report()
    assert (report["lateness_avg"], report["lateness_avg_60s"]) == (20 / 3, 0)
    assert (report["memory_records_now"], report["memory_records_avg"], report["memory_records_avg_60s"]) == (1, 2.5, 1)


def test_a_size_is_averaged_over_all_partitions_those_without_a_record_included():
    one, other = {0: {"memory_records_now": 4}}, {1: {"memory_records_now": 2}}
    assert metrics_of([meta(1, 0, {}, one), meta(2, 1, {}, other)]).report()["memory_records_avg"] == (4 + 6) / 2


def test_sums_have_a_total_and_lateness_bins_have_none():
    measures = {"suppressed": 6, "emitted_keys": 2, "lateness_upto_0": 3, "final.lateness_upto_0": 3}
    report = metrics_of([meta(1, 0, {}, {0: measures}), meta(2, 120_000, {}, {0: measures, 1: measures})]).report()
    assert (report["suppressed"], report["suppressed_rate"], report["suppressed_rate_60s"]) == (18, 18 / 120, 12 / 60)
    assert report["emitted_keys_rate"] == 6 / 120
    assert not [name for name in report if "lateness_upto_" in name and "rate" in name]


@settings(max_examples=50)
@given(st.data())
def test_the_newest_metadata_contains_the_totals_of_all_batches(data):
    """The figures that metadata carries on, and the batches of the last minute, report what all batches do."""
    numbers = st.integers(0, 5)
    newest = described(meta(0, 0, {}), next_offset=dict.fromkeys(range(3), 0))
    metas = [newest]
    for batch in range(1, data.draw(st.integers(1, 6)) + 1):
        results = [
            PartitionResult(
                partition=partition,
                action="batch",
                next_offset=batch,
                stream_time=0,
                counts=Counts(records_in=(n := data.draw(numbers)), applied=n, held=data.draw(numbers), held_bytes=n),
                measures={
                    name: data.draw(numbers) for name in ("suppressed", "memory_now", "x_max", "lateness_upto_4")
                },
                files=(),
                transaction=None,
            )
            for partition in data.draw(st.sets(st.integers(0, 2), min_size=1))
        ]
        clock = newest.clock + data.draw(st.sampled_from([1, 30_000, 61_000]))
        newest = after_batch(newest, results, batch=batch, attempt="a", clock=clock)
        metas.append(newest)
    recent = [each for each in metas[1:] if each.clock >= newest.clock - RECENT_MS]
    continued = Metrics.after(metas[-len(recent) - 1])
    for each in recent:
        continued.add(each)
    assert continued.report() == metrics_of(metas).report()
    assert Metrics.after(newest).report()["suppressed"] == metrics_of(metas).report()["suppressed"]
