"""Workers of a local Spark: used, lost, replaced and ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.patience import wait_for
from tidegate.runtime.spark.session import Spark, leaves_room, running_spark, start_spark
from tidegate.runtime.workers.jobs import WorkerJobs
from tidegate.runtime.workers.lanes import Item, Lane, WorkerLost
from tidegate.runtime.workers.placement import Post
from tidegate.runtime.workers.pool import Worker, Workers, put, workers_of
from tidegate.runtime.workers.resident import GIVES_WAY

pytestmark = [pytest.mark.spark]


def niceness_of(lane: Lane) -> int:
    return int(put(lane, Item("test", os.getpriority, (os.PRIO_PROCESS, 0))).result(60))


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    """A Spark without SQL; one that other tests have started stays."""
    running = running_spark()
    started = start_spark("workers", "local[2]")
    yield started
    if running is None:
        started.stop()


@pytest.fixture
def workers(spark: Spark) -> Iterator[Workers]:
    with workers_of(spark) as started:
        assert started is not None
        assert len(started.ready()) == 2
        yield started


def pid_of(worker: Worker) -> int:
    return int(ask(worker, os.getpid).result(60))


def ask(worker: Worker, function: Any, *arguments: Any) -> Future[Any]:
    return put(worker.batch, Item("test", function, arguments))


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


def test_a_local_spark_has_a_worker_per_core_and_as_many_slots_for_ordinary_jobs(
    spark: Spark, workers: Workers
) -> None:
    assert len({pid_of(worker) for worker in workers.ready()}) == 2
    context = spark.sparkContext
    assert (context.master, context.defaultParallelism) == ("local[4]", 2)
    assert leaves_room(context)
    assert context.parallelize(range(4), 2).map(lambda number: number + 1).collect() == [1, 2, 3, 4]


def test_a_killed_worker_is_noticed_at_once_and_replaced_and_partitions_stay_at_the_place(workers: Workers) -> None:
    before = homes(workers)
    victim = before[0]
    working = ask(victim, time.sleep, 60)
    os.kill(pid_of_busy(victim), signal.SIGKILL)
    assert isinstance(working.exception(5), WorkerLost)
    left = homes(workers)
    assert victim not in left.values()
    assert {p: worker for p, worker in left.items() if before[p] is not victim} == {
        p: worker for p, worker in before.items() if worker is not victim
    }
    wait_for(lambda: len(workers.ready()) == 2)
    after = homes(workers)
    assert victim.home is not None
    assert {worker.home for worker in after.values()} == {Post(victim.home.place, name) for name in "01"}


def homes(workers: Workers) -> dict[int, Worker]:
    return workers.at_home("driver", "op", range(4), lambda _: None)


def pid_of_busy(worker: Worker) -> int:
    assert worker.batch.hello is not None
    return worker.batch.hello.pid


def test_a_frozen_worker_is_lost_after_ten_seconds_and_killed(workers: Workers) -> None:
    victim, other = workers.ready()
    pid = pid_of(victim)
    os.kill(pid, signal.SIGSTOP)
    working = ask(victim, os.getpid)
    assert ask(other, os.getpid).result(10) != pid
    assert isinstance(working.exception(60), WorkerLost)
    wait_for(lambda: not alive(pid))
    wait_for(lambda: len(workers.ready()) == 2)


def test_what_takes_long_runs_beside_batches_and_can_be_cancelled(workers: Workers) -> None:
    worker = workers.ready()[0]
    lane = workers.beside(worker, "beside")
    pid = put(lane, Item("test", os.getpid, ())).result(60)
    assert pid != pid_of(worker)
    rebuild = put(lane, Item("rebuild", time.sleep, (60,)))
    assert pid_of(worker)
    workers.cancel("test")
    assert not rebuild.done()
    workers.cancel("rebuild")
    assert isinstance(rebuild.exception(5), WorkerLost)
    wait_for(lambda: not alive(pid))
    assert put(workers.beside(worker, "beside"), Item("test", os.getpid, ())).result(60) != pid


def test_a_process_for_the_background_gives_way_to_batches_and_to_what_is_waited_for(workers: Workers) -> None:
    worker = workers.ready()[0]
    beside = niceness_of(workers.beside(worker, "beside"))
    assert beside == niceness_of(worker.batch)
    assert niceness_of(workers.beside(worker, "background")) == min(19, beside + GIVES_WAY)


def test_pieces_of_a_compaction_run_one_at_a_time_and_their_code_travels(workers: Workers) -> None:
    jobs, factor = WorkerJobs(workers), 3
    assert jobs.each_sequentially(lambda number: number * factor, [1, 2]) == [3, 6]
    assert jobs.each(lambda number: number * factor, range(5)) == [0, 3, 6, 9, 12]
    assert jobs.each(lambda number: number, []) == []


def test_workers_end_promptly_also_in_the_middle_of_work(spark: Spark) -> None:
    with workers_of(spark) as workers:
        assert workers is not None
        pids = [pid_of(worker) for worker in workers.ready()]
        beside = workers.beside(workers.ready()[0], "beside")
        pids.append(put(beside, Item("test", os.getpid, ())).result(60))
        ask(workers.ready()[0], time.sleep, 60)
        put(beside, Item("test", time.sleep, (60,)))
        began = time.monotonic()
    assert time.monotonic() - began < 5
    wait_for(lambda: not alive(pids[0]))
    wait_for(lambda: not alive(pids[2]))
    assert spark.sparkContext.parallelize(range(4), 4).sum() == 6
