"""The Spark jobs of a driver. May import: pyspark, runtime.

Only plans and results go through Spark; a task gets a group of partitions and works on them one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate.contracts.config import OperatorRules
from tidegate.contracts.errors import EngineError
from tidegate.runtime.answers import raise_worst
from tidegate.runtime.batch import Attempt, KafkaAttempt, PartitionFailure, PartitionPlan, PartitionResult, Returned
from tidegate.runtime.lake_probe import check_shared, look
from tidegate.runtime.planning import spread
from tidegate.runtime.task import bring_back, make_durable, run_group, warm_up


class Jobs:
    """Runs plans on the executors of a session."""

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self._recovery = f"recovery {id(self)}"

    def run(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult | PartitionFailure]:
        """What became of each plan. EngineError when Spark itself failed."""
        groups = spread(plans, self._context.defaultParallelism)
        return self._collect(groups, lambda group: run_group(attempt, group))

    def bring_back(self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool) -> list[Returned]:
        """Bring local states back; raise the worst error. Without `rebuilds` those to be rebuilt are left.

        For a thread of its own, as `one_by_one`.
        """
        self._context.setLocalProperty("spark.scheduler.pool", "beside")
        self._context.setJobGroup(self._recovery, "local states on their way back", True)
        groups = spread(plans, self._context.defaultParallelism)
        answers = self._collect(groups, lambda group: bring_back(attempt, group, rebuilds=rebuilds))
        raise_worst([answer for answer in answers if isinstance(answer, PartitionFailure)])
        return [answer for answer in answers if isinstance(answer, Returned)]

    def give_up(self) -> None:
        """Nothing is brought back any more; a generation that was being made is never used."""
        self._context.cancelJobGroup(self._recovery)

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        return int(self._context.defaultParallelism)

    def warm_up(self, config: OperatorRules) -> None:
        """The Python workers have imported and compiled what a batch needs."""
        self._on_each_core(lambda: warm_up(config))

    def check_lake(self, log: Path) -> None:
        """Raise EngineError unless driver and executors share the lake of the log."""
        check_shared(log, lambda probe: self._on_each_core(lambda: look(probe)))

    def make_durable(self, attempt: Attempt) -> None:
        """The operator's local states are synced to disk, on every machine that has some."""
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

    def _on_each_core(self, work: Any) -> list[Any]:
        """The work's answers. Spark gives every core one of as many tasks as there are, if all of them are free."""
        cores = list(range(self._context.defaultParallelism))
        return self._collect(cores, lambda _core: [work()])

    def _collect(self, items: Sequence[Any], work: Any) -> list[Any]:
        job = self._context.parallelize(items, len(items)).mapPartitions(_each(work))
        try:
            return list(job.collect())
        except Exception as error:
            raise EngineError("the Spark job failed", value=error, remedy="see Spark's lines above") from error


def _each(work: Any) -> Any:
    return lambda items: (answer for item in items for answer in work(item))
