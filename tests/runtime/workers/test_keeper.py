"""What the keeper of workers does at each look: Spark is scripted, and so is the process of the worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from tests.patience import wait_for
from tidegate.contracts.errors import EngineError
from tidegate.runtime.spark.session import Spark
from tidegate.runtime.spark.starting import StartingSpark
from tidegate.runtime.workers.lanes import Item, WorkerLost
from tidegate.runtime.workers.messages import Alive, Hello, Seat, send
from tidegate.runtime.workers.pool import FROZEN_LOOKS, QUIET_LOOKS, Worker, Workers, put, workers_of

pytestmark = pytest.mark.fast


class NoSpark:
    """A Spark that does not start, so that the keeper's thread ends and the test looks instead."""

    @property
    def sparkContext(self) -> Any:
        raise EngineError("Spark does not start")


class Job:
    """A long Spark job."""

    def __init__(self) -> None:
        self.ended = self.cancelled = False

    def error(self) -> str:
        return "no module named tidegate"

    def cancel(self) -> None:
        self.cancelled = True


class Tasks:
    """Where jobs are launched; one core."""

    on_this_machine = False
    host = "127.0.0.1"

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def cores(self) -> int:
        return 1

    def launch(self, _seat: Seat) -> Job:
        self.jobs.append(Job())
        return self.jobs[-1]


class Keeper:
    """A pool that looks when the test says so."""

    def __init__(self) -> None:
        self.pool, self.tasks = Workers(NoSpark()), Tasks()
        self.pool._keeper.join()
        self.process: Connection

    def look(self, times: int = 1) -> Worker:
        """The worker that there is after so many looks."""
        for _ in range(times):
            self.pool._look(self.tasks, 1)  # type: ignore[arg-type]
        [worker] = self.pool._all()
        return worker

    def connect(self, worker: Worker) -> None:
        """The worker's process has connected."""
        ours, theirs = socket.socketpair()
        self.process = Connection(theirs.detach())
        hello = Hello(worker.seat.number, "batch", "machine", 1, 2)
        lane = self.pool._lane_of(hello)
        assert lane is worker.batch
        lane.connected(Connection(ours.detach()), hello)
        self.pool._warm(worker)


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    found = Keeper()
    yield found
    for worker in found.pool._all():
        worker.batch.lose("the test is over")


def test_a_worker_without_a_sign_of_life_for_ten_seconds_is_lost_and_replaced(keeper: Keeper) -> None:
    worker = keeper.look()
    keeper.connect(worker)
    answer = put(worker.batch, Item("op", len, ((),)))
    assert keeper.look(FROZEN_LOOKS) is worker
    assert not answer.done()
    assert keeper.look() is not worker
    assert isinstance(answer.exception(5), WorkerLost)
    assert keeper.tasks.jobs[0].cancelled


def test_a_sign_of_life_keeps_a_worker(keeper: Keeper) -> None:
    worker = keeper.look()
    keeper.connect(worker)
    assert keeper.look(FROZEN_LOOKS) is worker
    send(keeper.process, Alive())
    wait_for(lambda: worker.batch.silent == 0)
    assert keeper.look(FROZEN_LOOKS) is worker


def test_a_silent_worker_whose_job_has_ended_is_lost_at_once_as_with_its_executor(keeper: Keeper) -> None:
    worker = keeper.look()
    keeper.connect(worker)
    keeper.tasks.jobs[0].ended = True
    assert keeper.look(QUIET_LOOKS) is worker
    assert keeper.look() is not worker


def test_a_worker_that_waits_for_a_core_is_waited_for(keeper: Keeper) -> None:
    worker = keeper.look()
    assert keeper.look(10 * FROZEN_LOOKS) is worker


def test_the_reason_why_workers_do_not_start_is_raised(keeper: Keeper) -> None:
    keeper.look()
    keeper.tasks.jobs[0].ended = True
    keeper.look()
    with pytest.raises(EngineError, match="the Spark job failed") as failed:
        keeper.pool.ready()
    assert "no module named tidegate" in str(failed.value)


def test_a_replacement_on_the_machine_gets_the_homes_of_the_lost_worker(keeper: Keeper) -> None:
    worker = keeper.look()
    keeper.connect(worker)
    assert set(keeper.pool.at_home("op", range(3)).values()) == {worker}
    worker.batch.lose("a worker was lost")
    replacement = keeper.look()
    keeper.connect(replacement)
    assert (replacement.place, replacement.post) == (worker.place, worker.post)
    assert set(keeper.pool.at_home("op", range(3)).values()) == {replacement}


def test_applications_of_one_process_share_their_workers_until_the_last_has_ended() -> None:
    """Two pools would take the slots of ordinary jobs."""

    def start() -> Spark:
        raise EngineError("Spark does not start")

    spark = StartingSpark(start, lambda: None)
    with workers_of(spark) as first:
        with workers_of(spark) as second:
            assert second is first
        assert first is not None
        assert not first._stopping.is_set()
    assert first._stopping.is_set()
    with workers_of(spark) as third:
        assert third is not first
