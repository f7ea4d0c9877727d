"""The budget for requests to an object store: how long the next batch waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.request_budget import (
    DAY_S,
    LONGEST_DELAY_S,
    SAVED_AT_MOST_S,
    STANDING_USD,
    RequestBudget,
    batch_usd,
)

pytestmark = pytest.mark.fast

BUDGETS = st.floats(0.1, 50.0)
PUTS = st.lists(st.tuples(st.integers(1, 40), st.floats(0, 20)), max_size=40)
"""Batches: their PUTs, and for how long nothing comes after the wait for the budget."""


def delays(budget: RequestBudget, batches: list[tuple[int, float]]) -> list[float]:
    """How long each batch makes the next one wait, if every wait is kept."""
    now, found = 0.0, []
    for puts, quiet in batches:
        budget = budget.spent(batch_usd(puts), now)
        found.append(budget.delay_s(now))
        now += found[-1] + quiet
    return found


@given(BUDGETS, st.integers(1, 4), PUTS)
def test_no_wait_is_longer_than_half_a_minute(usd: float, operators: int, batches: list[tuple[int, float]]) -> None:
    assert all(0 <= delay <= LONGEST_DELAY_S for delay in delays(RequestBudget.of_day(usd, operators, 0.0), batches))


@given(BUDGETS, PUTS)
def test_what_is_spent_is_earned_or_was_saved_unless_the_longest_wait_was_too_short(
    usd: float, batches: list[tuple[int, float]]
) -> None:
    budget, now, spent = RequestBudget.of_day(usd, 1, 0.0), 0.0, 0.0
    for puts, quiet in batches:
        budget = budget.spent(batch_usd(puts), now)
        spent += batch_usd(puts)
        delay = budget.delay_s(now)
        now += delay
        if delay >= LONGEST_DELAY_S * (1 - 1e-9):
            return
        assert spent <= (usd - STANDING_USD) / DAY_S * now + 1e-12
        now += quiet


@given(BUDGETS, st.floats(1, 10), PUTS)
def test_more_money_never_waits_longer_for_the_first_batch(
    usd: float, times: float, batches: list[tuple[int, float]]
) -> None:
    first = batches[:1]
    less, more = (delays(RequestBudget.of_day(each, 1, 0.0), first) for each in (usd, usd * times))
    assert all(fewer <= longer + 1e-9 for fewer, longer in zip(more, less, strict=True))


def test_a_budget_below_the_standing_costs_leaves_a_batch_every_half_minute() -> None:
    assert delays(RequestBudget.of_day(0.05, 1, 0.0), [(3, 0.0)] * 3) == [LONGEST_DELAY_S] * 3


def test_operators_share_the_budget() -> None:
    alone, shared = (delays(RequestBudget.of_day(1.0, operators, 0.0), [(3, 0.0)]) for operators in (1, 2))
    assert 0 < alone[0] < shared[0] < LONGEST_DELAY_S


def test_an_hour_of_quiet_pays_for_ten_minutes() -> None:
    budget = RequestBudget.of_day(1.0, 1, 0.0)
    burst = int(SAVED_AT_MOST_S * budget.usd_per_s / batch_usd(3))
    assert delays(budget.spent(0.0, 3_600.0), []) == []
    now, rested = 3_600.0, budget
    for _ in range(burst):
        rested = rested.spent(batch_usd(3), now)
    assert rested.delay_s(now) == 0
    assert rested.spent(2 * batch_usd(3), now).delay_s(now) > 0
