"""The workers of one Spark application: started, kept, replaced when lost, and ended."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from threading import Condition, Event, Lock, Thread
from typing import Any

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import EngineError
from tidegate.runtime.spark.session import leaves_room
from tidegate.runtime.spark.starting import StartingSpark
from tidegate.runtime.task.run import warm_up
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.runtime.workers.connection import Door, hang_up
from tidegate.runtime.workers.lanes import Item, Lane
from tidegate.runtime.workers.messages import BesideName, Hello, Seat, receive
from tidegate.runtime.workers.placement import Placement, Post, is_needed, lacking, shares
from tidegate.runtime.workers.places import Disk, disk_of, first_free, place_of
from tidegate.runtime.workers.resident import start_beside
from tidegate.runtime.workers.spark_tasks import ANYWHERE, LongJob, SparkTasks

lines = logging.getLogger("tidegate")

LOOK_EVERY_S = 0.5
FROZEN_LOOKS = 20
"""A process that gave no sign of life between so many looks of the keeper, 10 s, is lost. Looks, not seconds: a driver
that was stopped itself has not looked meanwhile."""
QUIET_LOOKS = 2
"""A process that was silent for longer is lost if Spark says that its task has ended, as with its executor."""
CONNECT_LOOKS = 60
"""A task that runs for half a minute and has not connected stands still: Spark may have given it a process that did."""
STARTING_LOOKS = 240
"""A process beside a worker that has not connected after two minutes is lost."""
UNUSED_LOOKS = 120
"""A process beside a worker that had nothing to do for a minute is ended."""
ALL_THERE_S, ONE_THERE_S = 30.0, 60.0
"""How long after the start drivers wait until all workers are ready, and at any time for one of them."""
AVOIDED_LOOKS = 20
"""How long no worker is started for an executor after Spark has started one elsewhere: it has no free slot, or stands
still."""
STOP_S = 5.0
_WARMING, _STARTING = "warm-up", "start beside"
_NOT_STARTED = "the process beside a worker did not start"
TeamSize = Callable[[int], int | None]


@dataclass(eq=False)
class Worker:
    """A resident task: its lane for batches, and those beside it, each of which is started when it is needed.

    `executor`: Spark's name of the one where it is to start, and then of the one where it runs. `home`: the names of
    the place and of the worker there, by which partitions find their homes; None before it has connected.
    `unconnected`: the keeper's looks since the task began, before it has connected.
    """

    seat: Seat
    job: LongJob
    batch: Lane
    executor: str = ANYWHERE
    disk: Disk | None = None
    home: Post | None = None
    ready: bool = False
    unconnected: int = 0
    beside: dict[BesideName, Lane] = field(default_factory=dict)

    @property
    def lanes(self) -> list[Lane]:
        """Return the lanes that there are."""
        return [self.batch, *self.beside.values()]


@dataclass
class _Owner:
    """What is known of a driver: its configuration, with which workers are warmed up, and where its partitions are."""

    config: OperatorRules | None = None
    placement: Placement | None = None


class Workers:
    """The workers of one Spark application, which the drivers of all of its operators share.

    There is one for each core of its executors, unless Spark's default parallelism is lower. They are started in the
    background; with a StartingSpark as soon as that has started.
    """

    def __init__(self, spark: Any) -> None:
        self.starts_in_background = isinstance(spark, StartingSpark)
        self._spark = spark
        self._key = secrets.token_bytes(32)
        self._changed = Condition()
        self._workers: dict[int, Worker] = {}
        self._owners: dict[str, _Owner] = {}
        self._numbers = count()
        self._sizes: Counter[str] = Counter()
        self._wanted: dict[str, int] = {}
        self._avoided: dict[str, int] = {}
        self._begun: float | None = None
        self._failure: Exception | None = None
        self._stopping = Event()
        self._keeper = Thread(target=self._keep, name="keeper of workers", daemon=True)
        self._keeper.start()

    # ---- work

    def ready(self) -> list[Worker]:
        """Return the workers that are ready. Wait for one, and at the start for all of them.

        Raise EngineError if there is none, and the error with which Spark did not start.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._begun is not None)
            self._changed.wait_for(lambda: self._failure is not None or self._are_there(), ONE_THERE_S)
            found, failure = self._ready(), self._failure
        if found:
            return found
        if failure is not None:
            raise failure
        raise EngineError(
            "no worker has connected to the driver",
            value=f"{sum(self._wanted.values())} wanted",
            remedy="let executors reach the driver's host, and give the application cores: see docs/how-to/clusters.md",
        )

    def at_home(self, owner: str, operator: str, partitions: Sequence[int], limit: TeamSize) -> dict[int, Worker]:
        """Return the home worker of each of the operator's partitions.

        `limit`: how many workers an operator with so many partitions has at most.
        """
        workers = {worker.home: worker for worker in self._ready() or self.ready() if worker.home is not None}
        with self._changed:
            known = self._owners.setdefault(owner, _Owner())
            placement = known.placement = known.placement or Placement(operator)
            everything = range(1 + max([*partitions, *placement.places]))
            present = Counter(post.place for post in workers)
            self._sizes |= present
            sizes = {place: self._sizes[place] for place in present}
            before = placement.places
            found = placement.settle(everything, sizes, workers.keys(), limit(len(everything)))
        for partition, place in before.items():
            if placement.places[partition] != place:
                line = "%s, partition %d: moves from %s to %s"
                lines.info(line, operator, partition, place, placement.places[partition], extra=log_fields(operator))
        return {partition: workers[found[partition]] for partition in partitions}

    def to_drop(self, owner: str) -> list[tuple[Worker, frozenset[int]]]:
        """Return, once, a worker of each place that may have copies of states that are at home elsewhere, and which."""
        one_each = {worker.home.place: worker for worker in self._ready() if worker.home is not None}
        with self._changed:
            placement = self._owners[owner].placement
            found = {} if placement is None else placement.to_drop(one_each)
        return [(one_each[place], partitions) for place, partitions in found.items()]

    def beside(self, worker: Worker, name: BesideName) -> Lane:
        """Return the worker's lane for what takes long and is called that; start its process if it has none."""
        with self._changed:
            if name in worker.beside:
                return worker.beside[name]
            lane = worker.beside[name] = Lane(lambda: self._beside_ended(worker, name, lane))
        start = Item(_STARTING, start_beside, (worker.seat, name))
        start.answer.add_done_callback(lambda done: None if done.exception() is None else lane.lose(_NOT_STARTED))
        worker.batch.put(start)
        return lane

    def cancel(self, owner: str) -> None:
        """Cancel all that this owner does beside batches; a process in the middle of it is ended."""
        for lane in [lane for worker in self._all() for lane in [*worker.beside.values()]]:
            if lane.withdraw(owner):
                lane.lose("the work was cancelled")

    def warm_up(self, owner: str, config: OperatorRules) -> None:
        """Import and compile what the operator's batches need, in every worker there is and in those that come."""
        with self._changed:
            self._owners.setdefault(owner, _Owner()).config = config
            connected = [worker for worker in self._workers.values() if worker.batch.hello is not None]
        answers = [put(worker.batch, _warming(config)) for worker in connected]
        wait(answers)
        self.ready()

    def _ready(self) -> list[Worker]:
        return [worker for worker in self._all() if worker.ready]

    def _are_there(self) -> bool:
        """Return whether all workers are ready, or some, if the others had time enough."""
        count = len(self._ready())
        return count > 0 and (
            count >= sum(self._wanted.values()) or self._begun is None or time.monotonic() > self._begun + ALL_THERE_S
        )

    def _all(self) -> list[Worker]:
        with self._changed:
            return list(self._workers.values())

    # ---- connections

    def _welcome(self, connection: Connection) -> None:
        """Give a process that has connected its lane; hang up on one whose worker was given up."""
        with suppress(EOFError, OSError):
            hello: Hello = receive(connection)
            lane = self._lane_of(hello)
            if lane is not None:
                lane.connected(connection, hello)
                if hello.lane == "batch":
                    self._warm(self._workers.get(hello.seat))
                return
        hang_up(connection)
        connection.close()

    def _lane_of(self, hello: Hello) -> Lane | None:
        with self._changed:
            worker = self._workers.get(hello.seat)
            if worker is None:
                return None
            if hello.lane != "batch":
                return worker.beside.get(hello.lane)
            meant, worker.executor = worker.executor, hello.site.executor or worker.executor
            seated = [each for each in self._workers.values() if each.home is not None]
            if is_needed(worker.executor, self._wanted, [each.executor for each in seated]):
                worker.disk = disk_of(hello.site)
                place = place_of(hello.site, {each.disk: each.home.place for each in seated if each.disk and each.home})
                taken = {each.home.name for each in seated if each.home and each.home.place == place}
                worker.home = Post(place, first_free(taken))
                return worker.batch
            self._avoided[meant] = AVOIDED_LOOKS
        worker.batch.lose("a worker has come up where no further one is needed")
        return None

    def _warm(self, worker: Worker | None) -> None:
        """Let the worker have a share in batches once it is warm."""
        if worker is None:
            return
        with self._changed:
            configs = [owner.config for owner in self._owners.values() if owner.config is not None]
        answers = [put(worker.batch, _warming(config)) for config in configs]
        if answers:
            answers[-1].add_done_callback(lambda _done: self._warmed(worker))
        else:
            self._warmed(worker)

    def _warmed(self, worker: Worker) -> None:
        with self._changed:
            worker.ready, self._failure = True, None
            self._changed.notify_all()

    def _worker_ended(self, worker: Worker) -> None:
        with self._changed:
            self._workers.pop(worker.seat.number, None)
            worker.ready, beside = False, [*worker.beside.values()]
            self._changed.notify_all()
        for lane in beside:
            lane.lose("a worker was lost")

    def _beside_ended(self, worker: Worker, name: BesideName, lane: Lane) -> None:
        with self._changed:
            if worker.beside.get(name) is lane:
                del worker.beside[name]

    # ---- the keeper

    def _keep(self) -> None:
        """Start workers, replace lost ones, and end all of them when the pool is stopped."""
        try:
            tasks = SparkTasks(self._spark)
            door = Door(tasks.bind_host, self._key, self._welcome)
        except Exception as error:
            self._fail(error)
            return
        with closing(door):
            while not self._stopping.is_set():
                try:
                    self._look(tasks, door.port)
                except Exception as error:
                    self._fail(_job_failed(error))
                self._stopping.wait(LOOK_EVERY_S)
            self._end()

    def _look(self, tasks: SparkTasks, port: int) -> None:
        cores = tasks.executors()
        self._wanted = shares(cores, tasks.cores())
        for worker in self._all():
            for lane in worker.lanes:
                lane.look()
            self._look_at(worker, tasks)
            for lane in [*worker.beside.values()]:
                self._look_beside(worker, lane, tasks)
        self._avoided = {executor: looks - 1 for executor, looks in self._avoided.items() if looks > 1}
        for executor in lacking(self._wanted, [worker.executor for worker in self._all()]):
            if executor not in self._avoided:
                self._launch(tasks, port, executor)
        with self._changed:
            self._begun = self._begun or time.monotonic()
            self._changed.notify_all()

    def _look_at(self, worker: Worker, tasks: SparkTasks) -> None:
        starting = worker.batch.hello is None
        worker.unconnected += starting and worker.job.runs
        # rule: lost-executor-noticed
        if worker.executor not in self._wanted:
            worker.batch.lose("an executor was lost")
            worker.job.cancel()
        elif (starting or worker.batch.silent > QUIET_LOOKS) and worker.job.ended:
            if starting:
                self._fail(_job_failed(worker.job.error()))
            worker.batch.lose("a worker was lost")
        # rule: stuck-worker-replaced
        elif starting and worker.unconnected > CONNECT_LOOKS:
            lines.warning("a worker has not connected since its task began; it is replaced")
            worker.batch.lose("a worker did not connect")
            worker.job.cancel()
        # rule: frozen-worker-lost
        elif not starting and worker.batch.silent > FROZEN_LOOKS:
            self._give_up(worker, worker.batch, tasks)
            worker.job.cancel()

    def _look_beside(self, worker: Worker, lane: Lane, tasks: SparkTasks) -> None:
        if lane.silent > (STARTING_LOOKS if lane.hello is None else FROZEN_LOOKS):
            self._give_up(worker, lane, tasks)
        elif lane.unused > UNUSED_LOOKS:
            lane.lose("it was not used")

    def _give_up(self, worker: Worker, lane: Lane, tasks: SparkTasks) -> None:
        """Count the lane as lost, and end its process if that is on this machine: it may hold the lock of a state."""
        hello = lane.hello
        lines.warning("worker %s gives no sign of life; it is replaced", "/".join(worker.home or ("",)))
        lane.lose("a worker gives no sign of life")
        if hello is not None and tasks.on_this_machine:
            with suppress(ProcessLookupError):
                os.kill(hello.pid, signal.SIGKILL)

    def _launch(self, tasks: SparkTasks, port: int, executor: str) -> None:
        seat = Seat(next(self._numbers), tasks.host, port, self._key)
        with self._changed:  # it may connect before this is through
            job = tasks.launch(seat, executor)
            worker = Worker(seat, job, Lane(lambda: self._worker_ended(worker)), executor)
            self._workers[seat.number] = worker

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    # ---- the end

    def stop(self) -> None:
        """End the workers and their Spark jobs; wait for that a few seconds at most."""
        self._stopping.set()
        self._keeper.join()

    def _end(self) -> None:
        """Hang up, upon which tasks end by themselves; those in the middle of work are cancelled before."""
        workers = self._all()
        for worker in workers:
            if worker.batch.load or worker.batch.hello is None:
                worker.job.cancel()
            worker.batch.lose("the application has stopped")
        deadline = time.monotonic() + STOP_S
        while any(not worker.job.ended for worker in workers) and time.monotonic() < deadline:
            time.sleep(0.01)
        for worker in workers:
            worker.job.cancel()


def _job_failed(error: object) -> EngineError:
    return EngineError("the Spark job failed", value=error, remedy="see Spark's log above")


def put(lane: Lane, item: Item) -> Future[Any]:
    """Put the item in the lane and return the future of its answer."""
    lane.put(item)
    return item.answer


def _warming(config: OperatorRules) -> Item:
    return Item(_WARMING, warm_up, (config,))


@contextmanager
def workers_of(spark: Any) -> Iterator[Workers | None]:
    """Yield the workers that stay in this process's Spark; None if they would leave no slot to ordinary jobs.

    All applications of the process share them, as they share Spark. They end when the last block does.
    """
    if not isinstance(spark, StartingSpark) and not leaves_room(spark.sparkContext):
        yield None
        return
    with _sharing:
        workers = _users[-1] if _users else Workers(spark)
        _users.append(workers)
    try:
        yield workers
    finally:
        with _sharing:
            _users.remove(workers)
            last = workers not in _users
        if last:
            workers.stop()


_sharing = Lock()
_users: list[Workers] = []
"""The workers that are in use, once for each user."""
