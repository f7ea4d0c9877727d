"""The long Spark jobs in which workers stay.

Each worker has a job of its own: with the loss of one task Spark fails the whole job.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.serializers import BatchedSerializer, CPickleSerializer

from tidegate.runtime.spark.queries import shortened
from tidegate.runtime.spark.session import is_on_this_machine, is_on_threads
from tidegate.runtime.workers.messages import Seat
from tidegate.runtime.workers.resident import reside

DESCRIPTION = "Tidegate: a worker that stays"
LOOPBACK = "127.0.0.1"
ANYWHERE = ""
"""Stands for the name of an executor where it does not matter which one it is."""


class _Executor(NamedTuple):
    host: str
    cores: int


class LongJob:
    """A Spark job of one task. No thread of this process waits for it, so that none can hang when the process ends."""

    def __init__(self, action: Any, tracker: Any) -> None:
        self._action, self._tracker = action, tracker

    @property
    def runs(self) -> bool:
        """Return whether Spark has given the job's task a slot."""
        with suppress(Py4JError, OSError):
            jobs = [self._tracker.getJobInfo(job) for job in self._action.jobIds()]
            stages = [self._tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds()]
            return any(stage is not None and stage.numActiveTasks() > 0 for stage in stages)
        return False

    @property
    def ended(self) -> bool:
        """Return whether the job has ended, or Spark has."""
        try:
            return bool(self._action.isDone())
        except (Py4JError, OSError):
            return True

    def error(self) -> str:
        """Return why the job has ended; empty if it has succeeded."""
        try:
            self._action.get()
        except Exception as error:
            return shortened(str(getattr(error, "java_exception", error)))
        return ""

    def cancel(self) -> None:
        """Let Spark end the job; it kills the task's process if that does not end by itself."""
        with suppress(Py4JError, OSError):
            self._action.cancel(True)


class SparkTasks:
    """The Spark application in which workers stay. Waits for Spark, and raises as its start does."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._spark = self._context._jsc.sc()
        self._known: dict[str, _Executor] = {}
        self.on_this_machine = is_on_this_machine(self._context.master)

    @property
    def host(self) -> str:
        """Return the address under which executors reach this process."""
        return LOOPBACK if self.on_this_machine else str(self._context.getConf().get("spark.driver.host"))

    @property
    def bind_host(self) -> str:
        """Return the address on which this process listens for them."""
        return (
            self.host
            if self.on_this_machine
            else str(self._context.getConf().get("spark.driver.bindAddress", self.host))
        )

    def cores(self) -> int:
        """Return how many workers there are to be: Spark's default parallelism."""
        return int(self._context.defaultParallelism)

    def executors(self) -> dict[str, int]:
        """Return the cores of each executor that Spark has now; on threads, all are those of one without a name."""
        if is_on_threads(self._context.master):
            return {ANYWHERE: self.cores()}
        names = self._spark.getExecutorIds().mkString(" ").split()
        if not self._known.keys() >= set(names):
            self._known = self._described()
        if not names and self._grows:
            return {ANYWHERE: self.cores()}
        return {name: self._known[name].cores for name in names if name in self._known}

    @property
    def _grows(self) -> bool:
        """Return whether Spark asks for executors only when tasks wait for them."""
        return str(self._context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"

    def _described(self) -> dict[str, _Executor]:
        found = self._spark.statusStore().executorList(True)
        summaries = [found.apply(number) for number in range(found.size())]
        return {each.id(): _Executor(each.hostPort().rpartition(":")[0], int(each.totalCores())) for each in summaries}

    def launch(self, seat: Seat, executor: str) -> LongJob:
        """Start a job whose task is a worker on this seat, at the executor if it has a free slot in time.

        The key travels in the task's code, never in a text.
        """
        self._context.setLocalProperty("spark.job.description", DESCRIPTION)
        items = self._context.parallelize(range(1), 1) if executor == ANYWHERE else self._item_at(executor)
        action = items.mapPartitions(_residing(seat))._jrdd.collectAsync()
        return LongJob(action, self._context._jsc.statusTracker())

    def _item_at(self, executor: str) -> RDD[int]:
        """Return one item that Spark would have worked on at that executor."""
        jvm, serializer = self._context._jvm, CPickleSerializer()
        place = f"executor_{self._known[executor].host}_{executor}"
        item = jvm.scala.Tuple2(bytearray(serializer.dumps([0])), _sequence(jvm, place))
        of_bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        items = self._spark.makeRDD(_sequence(jvm, item), of_bytes)
        return RDD(items.toJavaRDD(), self._context, BatchedSerializer(serializer))


def _sequence(jvm: Any, item: Any) -> Any:
    """Return the item as a sequence of Scala's."""
    items = jvm.java.util.ArrayList()
    items.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq()


def _residing(seat: Seat) -> Any:
    def task(_items: Any) -> Any:
        reside(seat)
        return iter(())

    return task
