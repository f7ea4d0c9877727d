"""The part of `runtime.workers.pool` that drivers use: four workers at three places, which are lost and come back.

Work runs in the driver's thread. Where it runs is decided as in a service, by `runtime.workers.placement`. A worker can
be lost after its work, with its answer, or freeze in the middle: then it is a process of its own that continues later,
back from the dead, while others have its partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import EngineError
from tidegate.runtime.workers.lanes import Item, WorkerLost
from tidegate.runtime.workers.messages import BesideName
from tidegate.runtime.workers.placement import Placement, Post
from tidegate.testing.simulation.world import World

_HOMES = (Post("executor-0", "0"), Post("executor-0", "1"), Post("executor-1", "0"), Post("executor-2", "0"))
"""Two workers at a place share its local states."""
_LONGEST_START = 14
_LONGEST_ABSENCE = 6
"""How many times homes are asked for, at most, before a lost worker has a replacement at its place."""


class SimulatedWorker:
    """A worker, which is its own lane for batches and for what takes long."""

    def __init__(self, world: World, home: Post) -> None:
        self.home, self.absent = home, 0
        self.batch = self
        self.beside: dict[BesideName, SimulatedWorker] = {"beside": self, "background": self}
        self._world = world

    @property
    def load(self) -> int:
        """Return how much work waits, so that either worker of a place may be the one that is free first."""
        return self._world.chance.of("load").randrange(2)

    def put(self, item: Item) -> None:
        """Do the work now and settle its answer."""
        world = self._world
        if self.absent:
            self._lose(item.answer)
        elif world.chance.happens("zombie_task"):
            self._leave_behind(item)
            self._lose(item.answer)
        else:
            self._do(item)

    def _do(self, item: Item) -> None:
        try:
            found = self._work(item)()
        except Exception as error:
            item.answer.set_exception(EngineError("the task of a worker failed", value=error))
            return
        if self._world.chance.happens("job_failure"):
            self._lose(item.answer)
        else:
            item.answer.set_result(found)

    def _work(self, item: Item) -> Callable[[], Any]:
        if item.attempt is None:
            return lambda: item.function(*item.arguments)
        attempt = replace(item.attempt, state=item.attempt.state / self.home.place)
        return lambda: item.function(attempt, *item.arguments)

    def _lose(self, answer: Future[Any]) -> None:
        self.absent = self.absent or self._world.chance.of("absence").randrange(1, _LONGEST_ABSENCE)
        answer.set_exception(WorkerLost("a worker was lost"))

    def _leave_behind(self, item: Item) -> None:
        """Do the work for a few steps, and leave it as a process of its own that continues later."""
        world = self._world
        driver = world.stage.current
        zombie = world.stage.enter(
            f"worker of {driver.name if driver else ''}", driver.machine if driver else None, self._work(item)
        )
        zombie.budget = world.chance.of("zombie_task").randrange(1, _LONGEST_START)
        world.stage.resume(zombie)


class SimulatedWorkers:
    """The workers of a driver; one at least is always there."""

    starts_in_background = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._workers = [SimulatedWorker(world, home) for home in _HOMES]
        self._placements: dict[str, Placement] = {}

    def ready(self) -> list[SimulatedWorker]:
        """Return the workers that are there."""
        there = [worker for worker in self._workers if not worker.absent]
        if not there:
            self._workers[0].absent = 0
        return there or self._workers[:1]

    def at_home(
        self, owner: str, operator: str, partitions: Sequence[int], limit: Callable[[int], int | None]
    ) -> dict[int, SimulatedWorker]:
        """Return the home worker of each partition. Between two calls, time passes for those that are lost."""
        placement = self._placements.setdefault(owner, Placement(operator))
        for worker in self._workers:
            worker.absent = max(worker.absent - 1, 0)
        there = {worker.home: worker for worker in self.ready()}
        everything = range(1 + max([*partitions, *placement.places]))
        before = placement.places
        found = placement.settle(everything, Counter(post.place for post in there), there, limit(len(everything)))
        self._world.events["partitions moved"] += sum(
            before.get(p, place) != place for p, place in placement.places.items()
        )
        return {partition: there[found[partition]] for partition in partitions}

    def to_drop(self, owner: str) -> list[tuple[SimulatedWorker, frozenset[int]]]:
        """Return, once, the workers that may have copies of states that are at home elsewhere, and which."""
        there = {worker.home.place: worker for worker in self.ready()}
        return [(there[place], partitions) for place, partitions in self._placements[owner].to_drop(there).items()]

    def beside(self, worker: SimulatedWorker, name: BesideName) -> SimulatedWorker:
        """Return the worker's lane for what takes long and is called that."""
        return worker.beside[name]

    def cancel(self, owner: str) -> None:
        """Do nothing: work ends within the call that began it."""

    def warm_up(self, owner: str, config: OperatorRules) -> None:
        """Do nothing: all is loaded."""
