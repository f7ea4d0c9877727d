"""Which partitions are worked on together."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.task.shares import FEW_RECORDS, SHARING, is_one_share, shares

pytestmark = pytest.mark.fast

RECORDS = st.lists(st.sampled_from([0, 1, 100, 700, FEW_RECORDS, FEW_RECORDS + 1, 10**9]), max_size=60)


def plans(records: list[int]) -> list[Any]:
    return [SimpleNamespace(partition=number, size=count) for number, count in enumerate(records)]


@given(RECORDS)
def test_shares_of_several_partitions_have_few_records_and_none_could_be_joined_with_the_next(
    records: list[int],
) -> None:
    given_plans = plans(records)
    found = shares(given_plans)
    assert [plan for share in found for plan in share] == given_plans
    assert all(is_one_share(share) for share in found if len(share) > 1)
    assert not any(is_one_share([*share, after[0]]) for share, after in pairwise(found))


def test_a_share_is_limited_in_partitions_and_in_records() -> None:
    assert is_one_share(plans([0] * SHARING)) and not is_one_share(plans([0] * (SHARING + 1)))
    assert is_one_share(plans([1, FEW_RECORDS - 1])) and not is_one_share(plans([1, FEW_RECORDS]))
