"""The Spark jobs of a driver.

Only plans and results go through Spark; each task gets a group of partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import EngineError
from tidegate.runtime.spark.lake_probe import answer_probe, check_shared
from tidegate.runtime.spark.starting import StartingSpark
from tidegate.runtime.task.messages import (
    Attempt,
    KafkaAttempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
    RecoveryOutcome,
)
from tidegate.runtime.task.results import outcomes_of
from tidegate.runtime.task.run import (
    make_durable,
    recover_states,
    run_group,
    warm_up,
)
from tidegate.runtime.threads import in_background
from tidegate.state.lake.port import Lake


class SparkJobs:
    """Runs plans on Spark's executors, or in this process while Spark is still starting."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._recovery = f"recovery {id(self)}"
        self._workers: Future[list[Any]] | None = None

    def run(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult | PartitionFailure]:
        """Run the plans; return a result or a failure for each. Raise EngineError if Spark itself fails."""
        if self._is_starting():
            return list(run_group(attempt, plans))
        return self._collect(spread(plans, self.cores), lambda group: run_group(attempt, group))

    def recover_states(
        self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool
    ) -> list[RecoveryOutcome]:
        """Recover the local states of the plans; return the outcome of each. Raise the worst error.

        Without `rebuilds`, states that would have to be rebuilt from the log are left as they are. Call it on a
        separate thread, like `each_sequentially`.
        """
        if self._is_starting() and not rebuilds:
            return outcomes_of(list(recover_states(attempt, plans, rebuilds=False)))
        self._context.setLocalProperty("spark.scheduler.pool", "beside")
        self._context.setJobGroup(self._recovery, "recovery of local states", True)
        groups = spread(plans, self.cores)
        return outcomes_of(self._collect(groups, lambda group: recover_states(attempt, group, rebuilds=rebuilds)))

    def give_up(self) -> None:
        """Cancel the recovery of local states. A state generation that is not complete is never used."""
        self._context.cancelJobGroup(self._recovery)

    @property
    def cores(self) -> int:
        """Return how many tasks run at once."""
        return int(self._context.defaultParallelism)

    def warm_up(self, config: OperatorRules) -> None:
        """Import and compile what a batch needs on Spark's workers.

        While Spark is starting, that happens in the background, and in this process as well.
        """
        if self._workers is None and isinstance(self._spark, StartingSpark):
            self._workers = in_background(lambda: self._on_each_core(lambda: warm_up(config)), "warm-up")
        if self._is_starting():
            warm_up(config)
        else:
            self._on_each_core(lambda: warm_up(config))

    def check_lake(self, log: Lake) -> None:
        """Raise EngineError unless driver and executors share the lake of the log."""
        if not isinstance(self._spark, StartingSpark):  # executors of a StartingSpark are on this machine
            check_shared(log, lambda probe: self._on_each_core(lambda: answer_probe(log, probe)))

    def make_durable(self, attempt: Attempt) -> None:
        """Fsync the operator's local states on every machine that has some."""
        if self._is_starting():
            make_durable(attempt)
        else:
            self._on_each_core(lambda: make_durable(attempt))

    def each(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """Run the work on each item; return the results in order. Start no job if there are no items."""
        return self._collect(items, lambda item: [work(item)]) if items else []

    def each_sequentially(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """Run the work on one item at a time; return the results in order. The other cores stay free for batches.

        Call it on a separate thread: it sets the thread's scheduler pool, so that the jobs of batches do not queue
        behind it.
        """
        self._context.setLocalProperty("spark.scheduler.pool", "beside")
        return [answer for item in items for answer in self.each(work, [item])]

    @property
    def _context(self) -> Any:
        """Return Spark's context; wait until Spark has started."""
        return self._spark.sparkContext

    def _is_starting(self) -> bool:
        """Return True while Spark's workers are not warm yet and this process does their work."""
        return self._workers is not None and not self._workers.done()

    def _on_each_core(self, work: Any) -> list[Any]:
        """Run the work once per core; return the results.

        Starts as many tasks as there are cores: if all cores are free, Spark gives each of them one.
        """
        return self._collect(list(range(self.cores)), lambda _core: [work()])

    def _collect(self, items: Sequence[Any], work: Any) -> list[Any]:
        job = self._context.parallelize(items, len(items)).mapPartitions(_each(work))
        try:
            return list(job.collect())
        except Exception as error:
            raise EngineError("the Spark job failed", value=error, remedy="see Spark's log above") from error


def spread(plans: Sequence[PartitionPlan], tasks: int) -> list[list[PartitionPlan]]:
    """Divide the plans into at most `tasks` non-empty groups with about equal numbers of offsets to read."""
    groups: list[list[PartitionPlan]] = [[] for _ in range(min(tasks, len(plans)))]
    loads = [0] * len(groups)
    for plan in sorted(plans, key=lambda plan: -plan.size):
        lightest = loads.index(min(loads))
        groups[lightest].append(plan)
        loads[lightest] += plan.size + 1
    return groups


def _each(work: Any) -> Any:
    return lambda items: (answer for item in items for answer in work(item))
