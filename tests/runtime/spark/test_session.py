"""The settings of every Spark session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf

from tidegate.contracts.errors import UserError
from tidegate.runtime.spark import session
from tidegate.runtime.spark.session import (
    _QUICK_START,
    _SETTINGS,
    _settings,
    _with_spare_slots,
    check_room,
    leaves_room,
)

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


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", "local[2]"), ("local[3]", "local[6]"), ("local[3,1]", "local[6,1]"), ("local[*]", "local[10]")],
)
def test_spark_on_threads_has_twice_as_many_slots_as_cores(
    master: str, slots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_processors", lambda _conf: 5)
    conf = _with_spare_slots({"spark.master": master})
    assert conf.get("spark.master") == slots
    assert conf.get("spark.default.parallelism") in ("1", "3", "5")


def test_a_cluster_and_a_chosen_parallelism_stay_as_they_are() -> None:
    master = "local-cluster[2,1,1024]"
    assert _with_spare_slots({"spark.master": master}).getAll() == SparkConf(False).set("spark.master", master).getAll()
    chosen = {"spark.master": "local[4]", "spark.default.parallelism": "1"}
    assert _with_spare_slots(chosen).get("spark.default.parallelism") == "1"


def context(master: str, slots: int, cores: int) -> Any:
    """A running Spark."""
    profiles = SimpleNamespace(defaultResourceProfile=lambda: "default")
    scala = SimpleNamespace(maxNumConcurrentTasks=lambda _profile: slots, resourceProfileManager=lambda: profiles)
    return SimpleNamespace(master=master, defaultParallelism=cores, _jsc=SimpleNamespace(sc=lambda: scala))


def test_workers_stay_only_where_an_ordinary_job_finds_a_slot_beside_them() -> None:
    assert leaves_room(context("local[4]", 4, 2))
    assert not leaves_room(context("local[4]", 4, 4))
    check_room(context("local[4]", 4, 4))  # no workers stay there


def test_a_query_beside_workers_that_take_a_whole_cluster_is_refused() -> None:
    assert leaves_room(context("spark://head:7077", 4, 4))
    check_room(context("spark://head:7077", 4, 3))
    with pytest.raises(UserError, match="all slots of the cluster"):
        check_room(context("spark://head:7077", 4, 4))
