"""The part of a SparkContext that `runtime.spark.jobs` uses: tasks run one after the other in the driver's turn.

A job can fail after its tasks have finished, and while one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegate.testing.simulation.world import World

_LONGEST_START = 14


class SimulatedSpark:
    """A session; it is its own context and its own data set."""

    defaultParallelism = 2

    def __init__(self, world: World) -> None:
        self._world = world
        self.sparkContext = self

    def setLocalProperty(self, name: str, value: str) -> None:
        """Jobs run one after the other here: no property changes anything."""

    def setJobGroup(self, group: str, description: str, interrupt_on_cancel: bool) -> None:
        """Jobs end by themselves here."""

    def cancelJobGroup(self, group: str) -> None:
        """Nothing is under way: a job ends within the turn that began it."""

    def parallelize(self, items: Sequence[Any], parts: int) -> Job:
        """A job over the items, one task for each."""
        return Job(self._world, list(items))


class Job:
    """Some items, and what is to be done with each."""

    def __init__(self, world: World, items: list[Any]) -> None:
        self._world, self._items = world, items

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterator[Any]]) -> Job:
        """The job does this work."""
        self._work = work
        return self

    def collect(self) -> list[Any]:
        """The answers of all tasks. RuntimeError when the job fails; a task of it may go on all the same."""
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
        """The task has gone some way, and will go on when it has a turn."""
        world = self._world
        driver = world.stage.current
        machine = driver.machine if driver else None
        zombie = world.stage.enter(
            f"task of {driver.name if driver else ''}", machine, lambda: list(self._work(iter([item]))) and None
        )
        zombie.budget = world.chance.of("zombie_task").randrange(1, _LONGEST_START)
        world.stage.resume(zombie)
