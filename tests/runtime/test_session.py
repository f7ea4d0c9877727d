"""The settings of every Spark session."""

from __future__ import annotations

import pytest

from tidegate.runtime.spark.session import _SETTINGS

pytestmark = pytest.mark.fast


def test_spark_tries_nothing_again() -> None:
    """A second attempt of a task would bear the batch's attempt, and produce into its transaction once more."""
    once = {"spark.speculation": "false", "spark.task.maxFailures": "1", "spark.stage.maxConsecutiveAttempts": "1"}
    assert {name: _SETTINGS.get(name) for name in once} == once
