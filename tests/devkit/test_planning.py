"""The model of deployments that fit no test machine: it agrees with what was measured, and the page with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.devkit.planning import HUNDRED, TEN_TIMES, Deployment, forecast, table

pytestmark = pytest.mark.fast

PAGE = Path(__file__).parents[2] / "docs" / "planning.md"
MEASURED = Deployment(operators=1, partitions=4, nodes=1, cores=2, rows=1_000_000)
"""What `tidegate bench lake` measures, in the table of docs/how-to/object-stores.md."""


def test_the_page_has_the_table_of_the_model() -> None:
    assert table(HUNDRED, TEN_TIMES) in PAGE.read_text()


def test_requests_and_dollars_are_those_that_were_measured() -> None:
    found = forecast(MEASURED)
    assert found.puts_of_batch == pytest.approx(3.04, rel=0.03)
    assert found.usd == pytest.approx(0.37, rel=0.1)


def test_the_rebuild_of_a_state_takes_as_long_as_was_measured() -> None:
    """A million rows took 2.8 s, and a lost executor is noticed within a second."""
    assert forecast(replace(MEASURED, nodes=3, cores=1)).executor_lost_s == pytest.approx(1 + 2.8 / 2, rel=0.1)


@pytest.mark.parametrize("partitions", [1, 4, 16, 100])
def test_a_batch_costs_as_many_puts_at_any_number_of_partitions_that_two_workers_do(partitions: int) -> None:
    assert forecast(replace(HUNDRED, partitions=partitions)).puts_of_batch <= 3.1


def test_ten_times_as_much_on_ten_times_the_nodes_is_the_same_for_a_node_and_ten_times_as_much_for_drivers() -> None:
    small, large = forecast(HUNDRED), forecast(TEN_TIMES)
    assert (large.node_bytes, large.batch_s) == (small.node_bytes, small.batch_s)
    assert large.driver_cores == pytest.approx(10 * small.driver_cores)
    assert large.usd == pytest.approx(10 * small.usd)


def test_a_longer_pause_between_batches_costs_less_of_everything_but_the_leases() -> None:
    often, seldom = forecast(HUNDRED), forecast(replace(HUNDRED, trigger_s=30.0))
    assert seldom.usd < often.usd / 2
    assert seldom.driver_cores < often.driver_cores / 3
