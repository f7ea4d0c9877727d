"""A query of a view under its former name works, and says which name replaces it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tidegate.runtime.configuration.application import Application, application_of
from tidegate.spark import query

pytestmark = pytest.mark.fast

SESSION: Any = None
"""No Spark is needed: `rows_of` takes its place."""


@pytest.fixture(autouse=True)
def rows_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.runtime.spark.queries.rows_of", lambda spark, text, remedy: f"rows of {text}")


@pytest.fixture
def application(tmp_path: Path) -> Application:
    """An application of one operator, which has no log yet."""
    operator: dict[str, Any] = {"kind": "suppression", "input": "in", "until": {"time_limit": "30s"}}
    file = {"application": "app", "lake": str(tmp_path), "kafka": {"bootstrap.servers": "b:9092"}}
    return application_of(file | {"keep_output": "1d", "operators": {"latest": operator}})


def test_a_former_name_of_a_view_works_with_a_line_that_says_the_present_one(application: Application) -> None:
    text = "SELECT * FROM Latest_Refused_Counts"
    with pytest.warns(
        FutureWarning, match="latest_refused_counts is deprecated; query latest_late_and_rejected_counts"
    ):
        assert query(SESSION, application, text) == f"rows of {text}"


def test_the_present_names_of_views_are_queried_without_a_warning(application: Application) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        query(SESSION, application, "SELECT *, not_latest_refused_counts FROM latest_late_and_rejected_counts")
