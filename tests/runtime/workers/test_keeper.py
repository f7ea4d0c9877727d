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
from tidegate.runtime.workers.lanes import Item, Lane, WorkerLost
from tidegate.runtime.workers.messages import Alive, Hello, Seat, Site, send
from tidegate.runtime.workers.placement import Post
from tidegate.runtime.workers.pool import (
    AVOIDED_LOOKS,
    CONNECT_LOOKS,
    FROZEN_LOOKS,
    QUIET_LOOKS,
    Worker,
    Workers,
    put,
    workers_of,
)
from tidegate.runtime.workers.spark_tasks import ANYWHERE

pytestmark = pytest.mark.fast


class NoSpark:
    """A Spark that does not start, so that the keeper's thread ends and the test looks instead."""

    @property
    def sparkContext(self) -> Any:
        raise EngineError("Spark does not start")


class Job:
    """A long Spark job."""

    def __init__(self) -> None:
        self.ended = self.cancelled = self.runs = False

    def error(self) -> str:
        return "no module named tidegate"

    def cancel(self) -> None:
        self.cancelled = True


class Tasks:
    """Where jobs are launched; one core, unless the test has executors."""

    on_this_machine = False
    host = "127.0.0.1"

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.launched: list[str] = []
        self.cores_of = {ANYWHERE: 1}

    def cores(self) -> int:
        return sum(self.cores_of.values())

    def executors(self) -> dict[str, int]:
        return self.cores_of

    def launch(self, _seat: Seat, executor: str) -> Job:
        self.jobs.append(Job())
        self.launched.append(executor)
        return self.jobs[-1]


class Keeper:
    """A pool that looks when the test says so."""

    def __init__(self) -> None:
        self.pool, self.tasks = Workers(NoSpark()), Tasks()
        self.pool._keeper.join()
        self.process: Connection
        self.processes: list[Connection] = []

    def look(self, times: int = 1) -> Worker:
        """The worker that there is after so many looks."""
        [worker] = self.look_at_all(times)
        return worker

    def look_at_all(self, times: int = 1) -> list[Worker]:
        """The workers that there are after so many looks."""
        for _ in range(times):
            self.pool._look(self.tasks, 1)  # type: ignore[arg-type]
        return self.pool._all()

    def connect(self, worker: Worker, executor: str = "", disk: str = "1") -> Lane | None:
        """The worker's process has connected from that executor; return its lane if it is to work."""
        ours, theirs = socket.socketpair()
        self.process = Connection(theirs.detach())
        self.processes.append(self.process)
        hello = Hello(worker.seat.number, "batch", Site("machine", executor, disk), 2)
        lane = self.pool._lane_of(hello)
        if lane is not None:
            lane.connected(Connection(ours.detach()), hello)
            self.pool._warm(worker)
        return lane

    def homes(self, partitions: int, limit: int | None = None) -> list[Worker]:
        """The home workers of an operator's partitions."""
        found = self.pool.at_home("driver 0", "op", range(partitions), lambda _: limit)
        return [found[partition] for partition in range(partitions)]


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


def test_a_worker_whose_task_runs_and_does_not_connect_is_replaced(keeper: Keeper) -> None:
    """Spark may give a task a process that stands still, and waits for it for ever."""
    worker = keeper.look()
    keeper.tasks.jobs[0].runs = True
    assert keeper.look(CONNECT_LOOKS) is worker
    assert keeper.look() is not worker
    assert keeper.tasks.jobs[0].cancelled


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
    assert keeper.homes(3) == [worker] * 3
    worker.batch.lose("a worker was lost")
    replacement = keeper.look()
    keeper.connect(replacement)
    assert replacement.home == worker.home
    assert keeper.homes(3) == [replacement] * 3


@pytest.fixture
def cluster(keeper: Keeper) -> Keeper:
    """Three executors of two cores, each with a worker for each core."""
    keeper.tasks.cores_of = dict.fromkeys("123", 2)
    for worker in keeper.look_at_all():
        keeper.connect(worker, worker.executor, f"/disk-{worker.executor}")
    return keeper


def test_each_executor_has_a_worker_for_each_core(cluster: Keeper) -> None:
    assert sorted(cluster.tasks.launched) == ["1", "1", "2", "2", "3", "3"]
    assert {worker.home for worker in cluster.pool.ready()} == {
        Post(f"machine:/disk-{executor}", name) for executor in "123" for name in "01"
    }
    cluster.look_at_all(3)
    assert len(cluster.tasks.launched) == 6


def test_the_workers_of_an_executor_that_spark_has_lost_are_lost_at_the_next_look(cluster: Keeper) -> None:
    before = cluster.homes(6)
    cluster.tasks.cores_of = dict.fromkeys("13", 2)
    left = cluster.look_at_all()
    assert sorted(worker.executor for worker in left) == ["1", "1", "3", "3"]
    assert len(cluster.tasks.launched) == 6
    after = cluster.homes(6)
    for home, new in zip(before, after, strict=True):
        assert new is home or home.executor == "2"


def test_a_new_executor_gets_its_workers_although_a_frozen_one_never_gives_its_own(cluster: Keeper) -> None:
    """What is waited for at one executor keeps no other one from its share."""
    for worker in cluster.pool._all():
        if worker.executor == "2":
            worker.batch.lose("a worker gives no sign of life")
    cluster.look_at_all(5)
    assert cluster.tasks.launched[6:] == ["2", "2"]
    cluster.tasks.cores_of = dict.fromkeys("1234", 2)
    cluster.look_at_all()
    assert cluster.tasks.launched[8:] == ["4", "4"]


def test_a_replaced_executor_with_the_state_folder_of_the_lost_one_gets_its_partitions(cluster: Keeper) -> None:
    before = [worker.home for worker in cluster.homes(6)]
    cluster.tasks.cores_of = dict.fromkeys("134", 2)
    for worker in cluster.look_at_all():
        if worker.executor == "4":
            cluster.connect(worker, "4", "/disk-2")
    assert [worker.home for worker in cluster.homes(6)] == before


def test_a_worker_that_spark_has_started_elsewhere_is_not_taken_and_soon_tried_again(cluster: Keeper) -> None:
    for worker in cluster.pool._all():
        if worker.executor == "2":
            worker.batch.lose("a worker gives no sign of life")
    astray = [worker for worker in cluster.look_at_all() if worker.executor == "2"]
    assert cluster.connect(astray[0], "1", "/disk-1") is None
    assert astray[0] not in cluster.pool._all()
    launched = len(cluster.tasks.launched)
    for _ in range(AVOIDED_LOOKS - 1):
        for worker in cluster.look_at_all():
            worker.batch.silent = 0
    assert len(cluster.tasks.launched) == launched
    cluster.look_at_all()
    assert cluster.tasks.launched[launched:] == ["2"]


def test_copies_are_dropped_where_partitions_are_not_at_home_once(cluster: Keeper) -> None:
    homes = cluster.homes(6)

    def drops() -> dict[str, frozenset[int]]:
        return {worker.executor: partitions for worker, partitions in cluster.pool.to_drop("driver 0")}

    elsewhere = {e: frozenset(p for p, home in enumerate(homes) if home.executor != e) for e in "123"}
    assert drops() == elsewhere
    assert drops() == {}
    cluster.tasks.cores_of = dict.fromkeys("13", 2)
    cluster.look_at_all()
    moved = cluster.homes(6)
    assert drops() == {e: frozenset(p for p, home in enumerate(moved) if home.executor != e) for e in "13"}


def test_an_operator_with_a_limit_has_its_partitions_on_so_many_workers_at_different_executors(
    cluster: Keeper,
) -> None:
    homes = cluster.homes(100, limit=2)
    assert len(set(homes)) == 2
    assert len({home.executor for home in homes}) == 2


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
