"""What the stack's demo produces."""

from __future__ import annotations

from functools import partial

import pandas as pd
import pytest

from services.stack_demo.month import by_day, month
from tidegate.devkit.demo.departures import Departure, departures

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def year() -> list[Departure]:
    """The departures of January, and of months behind it in the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pd, "read_csv", partial(pd.read_csv, nrows=40_000))
        return departures()


def test_fewer_days_are_a_prefix_of_more_days(year: list[Departure]) -> None:
    few, many = month(3, year), month(5, year)
    assert many.departures[: len(few.departures)] == few.departures
    assert few.readings == many.readings


def test_the_days_together_are_the_month_in_order(year: list[Departure]) -> None:
    january = month(31, year)
    days = list(by_day(january.departures))
    assert [day for day, _ in days] == list(range(1, 32))
    assert [departure for _, left in days for departure in left] == january.departures


def test_the_month_is_the_beginning_of_the_year(year: list[Departure]) -> None:
    january = month(31, year).departures
    assert 25_000 < len(january) < 28_000
    assert year[: len(january)] == january
