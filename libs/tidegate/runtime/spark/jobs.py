"""The Spark jobs of a driver.

Only plans and results go through Spark; a task gets a group of partitions and works on them one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tidegate.contracts.config import OperatorRules
from tidegate.contracts.errors import EngineError
from tidegate.runtime.messages import (
    Attempt,
    KafkaAttempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
    Returned,
)
from tidegate.runtime.spark.lake_probe import check_shared, look
from tidegate.runtime.spark.starting import StartingSpark
from tidegate.runtime.task.results import raise_worst
from tidegate.runtime.task.run import (
    bring_back,
    make_durable,
    run_group,
    warm_up,
)
from tidegate.runtime.threads import beside


class Jobs:
    """Runs plans on the executors of a session, or in this process as long as Spark starts beside."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._recovery = f"recovery {id(self)}"
        self._workers: Future[None] | None = None

    def run(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult | PartitionFailure]:
        """What became of each plan. EngineError when Spark itself failed."""
        if self._starts():
            return list(run_group(attempt, plans))
        return self._collect(spread(plans, self.cores), lambda group: run_group(attempt, group))

    def bring_back(self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool) -> list[Returned]:
        """Bring local states back; raise the worst error. Without `rebuilds` those to be rebuilt are left.

        For a thread of its own, as `one_by_one`.
        """
        if self._starts() and not rebuilds:
            return _returned(list(bring_back(attempt, plans, rebuilds=False)))
        self._context.setLocalProperty("spark.scheduler.pool", "beside")
        self._context.setJobGroup(self._recovery, "local states on their way back", True)
        groups = spread(plans, self.cores)
        return _returned(self._collect(groups, lambda group: bring_back(attempt, group, rebuilds=rebuilds)))

    def give_up(self) -> None:
        """Nothing is brought back any more; a generation that was being made is never used."""
        self._context.cancelJobGroup(self._recovery)

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        return int(self._context.defaultParallelism)

    def warm_up(self, config: OperatorRules) -> None:
        """What a batch needs is imported and compiled: in this process, and beside in Spark's, while that starts."""
        if self._workers is None and isinstance(self._spark, StartingSpark):
            self._workers = beside(lambda: self._on_each_core(lambda: warm_up(config)) and None)
        if self._starts():
            warm_up(config)
        else:
            self._on_each_core(lambda: warm_up(config))

    def check_lake(self, log: Path) -> None:
        """Raise EngineError unless driver and executors share the lake of the log."""
        if not isinstance(self._spark, StartingSpark):  # else they are on this machine
            check_shared(log, lambda probe: self._on_each_core(lambda: look(probe)))

    def make_durable(self, attempt: Attempt) -> None:
        """The operator's local states are synced to disk, on every machine that has some."""
        if self._starts():
            make_durable(attempt)
        else:
            self._on_each_core(lambda: make_durable(attempt))

    def each(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """The work's answer for each item, in order; no job without an item."""
        return self._collect(items, lambda item: [work(item)]) if items else []

    def one_by_one(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """The work's answer for each item, in order, on one core at a time: the others are left to the batches.

        For a thread of its own: a pool of its own is what keeps the batches' jobs from queueing behind this one.
        """
        self._context.setLocalProperty("spark.scheduler.pool", "beside")
        return [answer for item in items for answer in self.each(work, [item])]

    @property
    def _context(self) -> Any:
        """Spark's context, waited for."""
        return self._spark.sparkContext

    def _starts(self) -> bool:
        """True while there is no warm worker of Spark on this machine, and this process does their work."""
        return self._workers is not None and not self._workers.done()

    def _on_each_core(self, work: Any) -> list[Any]:
        """The work's answers. Spark gives every core one of as many tasks as there are, if all of them are free."""
        return self._collect(list(range(self.cores)), lambda _core: [work()])

    def _collect(self, items: Sequence[Any], work: Any) -> list[Any]:
        job = self._context.parallelize(items, len(items)).mapPartitions(_each(work))
        try:
            return list(job.collect())
        except Exception as error:
            raise EngineError("the Spark job failed", value=error, remedy="see Spark's lines above") from error


def spread(plans: Sequence[PartitionPlan], tasks: int) -> list[list[PartitionPlan]]:
    """The plans in at most `tasks` groups of about equal numbers of records; none empty."""
    groups: list[list[PartitionPlan]] = [[] for _ in range(min(tasks, len(plans)))]
    loads = [0] * len(groups)
    for plan in sorted(plans, key=lambda plan: plan.start - plan.end):
        lightest = loads.index(min(loads))
        groups[lightest].append(plan)
        loads[lightest] += plan.end - plan.start + 1
    return groups


def _returned(answers: Sequence[Returned | PartitionFailure]) -> list[Returned]:
    """The states that were looked at. Raises the worst error."""
    raise_worst([answer for answer in answers if isinstance(answer, PartitionFailure)])
    return [answer for answer in answers if isinstance(answer, Returned)]


def _each(work: Any) -> Any:
    return lambda items: (answer for item in items for answer in work(item))
