"""Metrics are a function of the commits."""

import pytest

from tidegate.contracts.schema import FORMAT, BatchMeta, Counts
from tidegate.runtime.metrics import later, metrics_of, together

pytestmark = pytest.mark.fast


def meta(batch, clock, counts, measures=None):
    return BatchMeta(
        format=FORMAT,
        operator="updates",
        table_id="t",
        epoch=1,
        batch=batch,
        attempt="a",
        action="batch",
        clock=clock,
        config="c",
        counts=counts,
        measures=measures or {},
    )


def test_rates_are_told_since_the_start_and_over_the_last_60_seconds():
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


def test_what_is_held_is_the_newest_of_every_partition():
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
    assert later(one, other) == {**merged, "held_now": 4}
    assert together(one, other) == {**merged, "held_now": 12}


def test_an_average_is_the_sum_over_its_count():
    report = metrics_of(
        [meta(1, 0, {}, {0: {"lateness_sum": 6, "lateness_count": 2}, 1: {"lateness_sum": 4, "lateness_count": 3}})]
    ).report()
    assert report["lateness_avg"] == 2
