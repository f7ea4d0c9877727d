"""The settings of every Spark session."""

from __future__ import annotations

import pytest

from tidegate.runtime.spark.session import _QUICK_START, _SETTINGS, _settings

pytestmark = pytest.mark.fast


def test_spark_never_retries() -> None:
    """A second attempt of a task would bear the batch's attempt, and produce into its transaction once more."""
    once = {"spark.speculation": "false", "spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"}
    assert {name: _SETTINGS.get(name) for name in once} == once


def test_a_session_with_delta_can_start_in_the_spark_of_drivers() -> None:
    """Drivers start no session, because it takes three times as long; a program may want one beside them."""
    settings = _settings("local[2]", _QUICK_START)
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert "delta-spark" in settings["spark.jars"]
    assert _QUICK_START in settings["spark.driver.extraJavaOptions"]
