"""Tasks run in this process while Spark starts on this machine, and in its workers from then on."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE_S, wait_for
from tests.runtime.stream.plain_spark import PlainContext
from tidegate.contracts.errors import EngineError
from tidegate.runtime.spark import jobs
from tidegate.runtime.spark.jobs import SparkJobs
from tidegate.runtime.spark.session import Spark
from tidegate.runtime.spark.starting import StartingSpark

pytestmark = pytest.mark.fast

GROUP: Any = ["p0", "p1"]
ATTEMPT: Any = SimpleNamespace()
CONFIG: Any = SimpleNamespace()


class Start:
    """A start of Spark that goes on when it is told to."""

    def __init__(self) -> None:
        self.may_go_on, self.jobs, self.stopped = Event(), list[Any](), list[str]()
        self.failure: Exception | None = None

    def __call__(self) -> Spark:
        assert self.may_go_on.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        return Spark(Context(self))  # type: ignore[arg-type]


class Context(PlainContext):
    """A context that notes its jobs."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        self._start = start

    def parallelize(self, items: Any, slices: int) -> PlainContext:
        """A job over the items."""
        self._start.jobs.append(list(items))
        return super().parallelize(items, slices)

    def setLocalProperty(self, _name: str, _value: str) -> None:
        """Jobs run at once."""

    def setJobGroup(self, *_told: Any) -> None:
        """Jobs run at once."""

    def stop(self) -> None:
        """It has ended."""
        self._start.stopped.append("stopped")


@pytest.fixture
def start() -> Start:
    return Start()


@pytest.fixture
def here(start: Start, monkeypatch: pytest.MonkeyPatch) -> SparkJobs:
    """Jobs of a Spark that starts."""
    monkeypatch.setattr(jobs, "run_group", lambda _attempt, group: (f"{plan} done" for plan in group))
    monkeypatch.setattr(jobs, "recover_states", lambda _attempt, group, *, rebuilds: iter(()))
    monkeypatch.setattr(jobs, "warm_up", lambda _config: 0)
    monkeypatch.setattr(jobs, "make_durable", lambda _attempt: [])
    monkeypatch.setattr(jobs, "spread", lambda plans, _cores: [[plan] for plan in plans])
    found = SparkJobs(StartingSpark(start, lambda: None))
    found.warm_up(CONFIG)
    return found


def test_no_task_waits_while_spark_starts(start: Start, here: SparkJobs) -> None:
    assert here.run(ATTEMPT, GROUP) == ["p0 done", "p1 done"]
    assert here.recover_states(ATTEMPT, GROUP, rebuilds=False) == []
    here.make_durable(ATTEMPT)
    assert start.jobs == []


def test_spark_runs_the_tasks_once_its_workers_are_warm(start: Start, here: SparkJobs) -> None:
    start.may_go_on.set()
    wait_for(lambda: not here._is_starting())
    assert start.jobs == [[0, 1]]
    assert here.run(ATTEMPT, GROUP) == ["p0 done", "p1 done"]
    assert start.jobs[1:] == [[["p0"], ["p1"]]]


def test_after_a_later_claim_tasks_stay_with_spark_s_workers(start: Start, here: SparkJobs) -> None:
    start.may_go_on.set()
    wait_for(lambda: not here._is_starting())
    workers = here._workers
    here.warm_up(CONFIG)
    assert here._workers is workers
    assert start.jobs == [[0, 1], [0, 1]]


def test_rebuilds_and_compactions_wait_for_spark(start: Start, here: SparkJobs) -> None:
    """A rebuild and a compaction: in this process they would take its cores from the batches."""
    start.may_go_on.set()
    assert here.recover_states(ATTEMPT, GROUP, rebuilds=True) == []
    assert here.each_sequentially(str, [1]) == ["1"]
    assert [["p0"], ["p1"]] in start.jobs
    assert [1] in start.jobs


def test_if_spark_does_not_start_that_is_reported_and_raised(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start.failure, told = EngineError("Spark does not start"), list[str]()
    spark = StartingSpark(start, lambda: told.append("told"))
    monkeypatch.setattr(jobs, "warm_up", lambda _config: 0)
    here = SparkJobs(spark)
    here.warm_up(CONFIG)
    start.may_go_on.set()
    wait_for(lambda: not here._is_starting())
    assert told == ["told"]
    for work in (lambda: here.run(ATTEMPT, GROUP), spark.stop):
        with pytest.raises(EngineError, match="Spark does not start"):
            work()


def test_spark_starts_once_and_is_stopped_after_it_has_started(start: Start) -> None:
    spark = StartingSpark(start, lambda: None)
    spark.stop()
    assert spark.start() is spark.start()
    start.may_go_on.set()
    spark.stop()
    assert start.stopped == ["stopped"]
