"""Executors that do not share the driver's lake are refused before the first batch."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.lakes import lake_at
from tests.runtime.miniature import Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.contracts.errors import EngineError
from tidegate.runtime.batch_loop.driver import InDoubt
from tidegate.runtime.spark.lake_probe import ProbeResult, answer_probe, check_shared
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import STAGING

pytestmark = pytest.mark.fast


@pytest.fixture
def log(tmp_path: Path) -> Lake:
    (made := tmp_path / "lake" / "op").mkdir(parents=True)
    return lake_at(made)


def here(log: Lake, probe: str) -> list[ProbeResult]:
    return [answer_probe(log, probe), answer_probe(log, probe)]


def nowhere(log: Lake, probe: str) -> list[ProbeResult]:
    """The lake is not mounted on the second executor."""
    return [answer_probe(log, probe), answer_probe(elsewhere(log), probe)]


def on_a_copy(log: Lake, probe: str) -> list[ProbeResult]:
    """The second executor has a copy of the driver's lake."""
    shutil.copytree(log.place.folder, elsewhere(log).place.folder)
    return [answer_probe(log, probe), answer_probe(elsewhere(log), probe)]


def elsewhere(log: Lake) -> Lake:
    return lake_at(Path(str(log.place).replace("/lake/", "/elsewhere/")))


def left(log: Lake) -> list[str]:
    return [found.key for found in log.list_after(STAGING)]


def test_a_shared_lake_passes_the_check_which_leaves_no_file(log: Lake) -> None:
    check_shared(log, partial(here, log))
    assert left(log) == []


@pytest.mark.parametrize(
    ("executors", "problem"), [(nowhere, "does not see what the driver wrote"), (on_a_copy, "the driver does not see")]
)
def test_an_executor_with_a_different_lake_is_refused_and_named(log: Lake, executors, problem: str) -> None:
    with pytest.raises(EngineError, match="do not share the lake") as refused:
        check_shared(log, partial(executors, log))
    assert problem in str(refused.value.value)
    assert "process" in str(refused.value.value)
    assert "same path" in refused.value.remedy
    assert left(log) == []


def test_a_driver_checks_the_lake_once_before_its_first_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka, jobs = ScriptedKafka(), Jobs()
    use_broker(monkeypatch, kafka)
    driver = driver_of(application(tmp_path), jobs)
    jobs.shares_lake = False
    with pytest.raises(EngineError, match="do not share the lake"):
        driver.start()
    assert isinstance(driver.claim, InDoubt), "no batch runs before the check has succeeded"
    jobs.shares_lake = True
    for _ in range(3):
        driver.start()
    assert jobs.probes == 2
