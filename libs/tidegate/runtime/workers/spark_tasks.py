"""The long Spark jobs in which workers stay.

Each worker has a job of its own: with the loss of one task Spark fails the whole job.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from tidegate.runtime.spark.queries import shortened
from tidegate.runtime.spark.session import is_on_this_machine
from tidegate.runtime.workers.messages import Seat
from tidegate.runtime.workers.resident import reside

DESCRIPTION = "Tidegate: a worker that stays"
LOOPBACK = "127.0.0.1"


class LongJob:
    """A Spark job of one task. No thread of this process waits for it, so that none can hang when the process ends."""

    def __init__(self, action: Any) -> None:
        self._action = action

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

    def launch(self, seat: Seat) -> LongJob:
        """Start a job whose task is a worker on this seat. The key travels in the task's code, never in a text."""
        self._context.setLocalProperty("spark.job.description", DESCRIPTION)
        job = self._context.parallelize(range(1), 1).mapPartitions(_residing(seat))
        return LongJob(job._jrdd.collectAsync())


def _residing(seat: Seat) -> Any:
    def task(_items: Any) -> Any:
        reside(seat)
        return iter(())

    return task
