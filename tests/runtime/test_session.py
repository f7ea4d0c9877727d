"""The settings of every Spark session."""

from __future__ import annotations

import pytest

from tidegate.runtime.spark.session import _QUICK_START, _SETTINGS, _settings

pytestmark = pytest.mark.fast


def test_spark_tries_nothing_again() -> None:
    """A second attempt of a task would bear the batch's attempt, and produce into its transaction once more."""
    once = {"spark.speculation": "false", "spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"}
    assert {name: _SETTINGS.get(name) for name in once} == once


def test_spark_for_drivers_loads_no_sql() -> None:
    """A session with Delta takes three times as long to start, and drivers use neither."""
    settings = _settings("local[2]", _QUICK_START)
    assert not [name for name in settings if name.startswith(("spark.sql", "spark.jars", "spark.databricks"))]
    assert _QUICK_START in settings["spark.driver.extraJavaOptions"]
