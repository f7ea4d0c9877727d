"""The part of a SparkContext that `runtime.spark.jobs` uses. Tasks run one after the other in the driver's thread.

A job can fail after its tasks have finished, or while one of them continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegate.testing.simulation.world import World

_LONGEST_START = 14


class SimulatedSpark:
    """A Spark session that is also its own SparkContext."""

    defaultParallelism = 2

    def __init__(self, world: World) -> None:
        self._world = world
        self.sparkContext = self

    def setLocalProperty(self, name: str, value: str) -> None:
        """Do nothing: jobs run one after the other, so no property has an effect."""

    def setJobGroup(self, group: str, description: str, interrupt_on_cancel: bool) -> None:
        """Do nothing: jobs are never cancelled."""

    def cancelJobGroup(self, group: str) -> None:
        """Do nothing: a job ends within the call that began it."""

    def parallelize(self, items: Sequence[Any], parts: int) -> Job:
        """Return a job over the items, with one task for each."""
        return Job(self._world, list(items))


class Job:
    """The items of a job, and the work to do on each."""

    def __init__(self, world: World, items: list[Any]) -> None:
        self._world, self._items = world, items

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterator[Any]]) -> Job:
        """Set the work of the job."""
        self._work = work
        return self

    def collect(self) -> list[Any]:
        """Return the results of all tasks. Raise RuntimeError if the job fails, while a task of it may continue."""
        answers: list[Any] = []
        for item in self._items:
            if self._world.chance.happens("zombie_task"):
                self._leave_behind(item)
                raise RuntimeError("an executor was lost")
            answers += self._work(iter([item]))
        if self._world.chance.happens("job_failure"):
            raise RuntimeError("the job's answers were lost")
        return answers

    def _leave_behind(self, item: Any) -> None:
        """Run the task for a few steps, and leave it as a process of its own that continues later."""
        world = self._world
        driver = world.stage.current
        machine = driver.machine if driver else None
        zombie = world.stage.enter(
            f"task of {driver.name if driver else ''}", machine, lambda: list(self._work(iter([item])))
        )
        zombie.budget = world.chance.of("zombie_task").randrange(1, _LONGEST_START)
        world.stage.resume(zombie)
