"""The reported effects of graces, computed from bins of lateness, against the lateness itself."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.reports.graces import (
    Lateness,
    grace_effect,
    grace_effects,
    lateness_of,
    rounded_duration,
    smallest,
)
from tidegate.devkit.charts import Bar, bar_chart
from tidegate.kernels.lateness_bins import BINS, bound_of

pytestmark = pytest.mark.fast

late_ms = st.lists(st.one_of(st.just(0), st.integers(0, 10**7), st.integers(0, 2**40)), min_size=1, max_size=50)
BOUNDS = [bound_of(number) for number in range(BINS)]


def counted(late: list[int]) -> Lateness:
    """As the measures of batches tell it."""
    measures = {"lateness_max": max(late), "lateness_count": len(late)}
    for each in late:
        name = f"lateness_upto_{next(bound for bound in BOUNDS if each <= bound)}"
        measures[name] = measures.get(name, 0) + 1
    return lateness_of(measures)


@given(late=late_ms, grace=st.integers(0, 2**40))
def test_the_share_that_a_grace_would_cover_is_exact_within_a_quarter_of_the_grace(late: list[int], grace: int) -> None:
    said = grace_effect(counted(late), grace)
    assert sum(each <= grace * 3 // 4 for each in late) <= said.served <= sum(each <= grace for each in late)
    assert said.share == said.served / len(late)


@given(late=late_ms, grace=st.integers(0, 2**40))
def test_the_added_delay_is_the_average_wait_within_a_quarter_of_the_lateness(late: list[int], grace: int) -> None:
    said = grace_effect(counted(late), grace)
    waits = [grace - each for each in late if each <= grace]
    assert said.delay <= sum(waits) / len(late)
    if grace >= 2 * max(late):
        assert said.delay >= sum(grace - each * 1.25 - 1 for each in late) / len(late) - 1


@given(late=late_ms, now=st.none() | st.integers(0, 2**40))
def test_suggested_graces_end_with_the_first_that_covers_all_records(late: list[int], now: int | None) -> None:
    found = grace_effects(counted(late), now)
    assert [each.grace for each in found] == sorted({each.grace for each in found})
    served = [each.served for each in found if each.grace != now]
    assert served == sorted(set(served))
    assert found[-1].share == 1
    assert now is None or now in [each.grace for each in found]
    everything = smallest(found, 1.0)
    assert everything is not None
    assert everything.grace >= max(late)


def test_without_a_record_no_grace_is_suggested() -> None:
    assert grace_effects(lateness_of({"lateness_max": 0, "lateness_count": 0})) == []


def test_records_older_than_the_lateness_bins_are_shown_separately() -> None:
    assert lateness_of({"lateness_max": 9, "lateness_count": 5, "lateness_upto_0": 2}).without_bin == 3


@pytest.mark.parametrize(("ms", "said"), [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (7_200_000, "2 h")])
def test_durations_of_graces_are_rounded_for_people(ms: int, said: str) -> None:
    assert rounded_duration(ms) == said


def test_a_chart_is_well_formed_for_any_text_and_bars_stay_in_its_frame() -> None:
    drawn = ElementTree.fromstring(bar_chart("a <b> & c", '"', [Bar("x<y", 2.0, "&"), Bar("z", -1.0, "")]))
    widths = [float(rect.get("width", "0")) for rect in drawn.iter("{http://www.w3.org/2000/svg}rect") if rect.get("x")]
    assert widths == [360, 360, 360, 0]
