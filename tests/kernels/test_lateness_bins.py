"""The bins in which lateness is counted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.kernels import lateness_bins

pytestmark = pytest.mark.fast

amounts = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 100), st.integers(0, 62).map(lambda power: 2**power))


@given(late=amounts)
@example(late=2**63 - 1)
def test_a_lateness_lies_between_the_bounds_of_its_bin_as_exactly_as_a_float_is(late: int) -> None:
    bins = np.zeros(lateness_bins.BINS, np.int64)
    lateness_bins.count(bins, late)
    (found,) = np.flatnonzero(bins).tolist()
    assert late <= lateness_bins.bound_of(found)
    assert found == 0 or late > lateness_bins.bound_of(found - 1) - late // 2**52


@given(late=st.integers(-(2**63), 2**63 - 1))
@example(late=-(2**63))
@example(late=-250)
@example(late=-1)
def test_every_number_is_counted_within_the_bins_and_what_is_not_late_in_the_first(late: int) -> None:
    around = np.zeros(3 * lateness_bins.BINS, np.int64)
    bins = around[lateness_bins.BINS : 2 * lateness_bins.BINS]
    lateness_bins.count(bins, late)
    assert around.sum() == bins.sum() == 1
    assert late > 0 or bins[0] == 1


def test_the_bounds_are_exact_up_to_4_ms_then_grow_by_a_quarter_at_the_most() -> None:
    bounds = [lateness_bins.bound_of(number) for number in range(lateness_bins.BINS)]
    assert bounds[:14] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    assert bounds == sorted(bounds)
    assert all(later <= before * 1.25 for before, later in pairwise(bounds[4:]))
