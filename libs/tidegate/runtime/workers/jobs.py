"""The jobs of a driver, done by the workers of its Spark application."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from itertools import count
from typing import Any, TypeVar

from tidegate.contracts.config.rules import OperatorRules
from tidegate.runtime.spark.lake_probe import ProbeResult, answer_probe, check_shared
from tidegate.runtime.task.messages import (
    Attempt,
    KafkaAttempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
    RecoveryOutcome,
)
from tidegate.runtime.task.results import outcomes_of
from tidegate.runtime.task.run import drop_states, make_durable, recover_states, run_group, warm_up
from tidegate.runtime.task.shares import is_one_share
from tidegate.runtime.task.warm_up import freeze_loaded_objects
from tidegate.runtime.threads import in_background
from tidegate.runtime.workers.lanes import Item, Lane, WorkerLost
from tidegate.runtime.workers.pool import TeamSize, Worker, Workers, put
from tidegate.state.lake.port import Lake

_NUMBERS = count()

Answer = TypeVar("Answer")


class WorkerJobs:
    """Runs plans on workers, each partition at its home, or in this process while Spark is still starting."""

    def __init__(self, workers: Workers, limit: TeamSize = lambda partitions: None) -> None:
        self._workers, self._limit = workers, limit
        self._owner = f"driver {next(_NUMBERS)}"
        self._recovery = f"{self._owner}, recovery"
        self._warm: Future[None] | None = None

    def run(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult | PartitionFailure]:
        """Run the plans; return a result or a failure for each, those of a lost worker included.

        After the loss of a worker what others still do for the attempt is not waited for: it has failed. Raise
        EngineError if there are no workers.
        """
        if self._is_starting():
            return list(run_group(attempt, plans))
        answers = {
            put(worker.batch, Item(self._owner, _run_group, (group,), attempt)): group
            for worker, group in _gathered(self._groups(attempt, plans)).items()
        }
        # rule: copies-dropped
        for worker, partitions in self._workers.to_drop(self._owner):
            put(worker.batch, Item(self._recovery, drop_states, (partitions,), attempt))
        done, _ = wait(answers, return_when=FIRST_EXCEPTION)
        return [each for answer in done for each in _answers(answer, answers[answer])]

    def recover_states(
        self, attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool
    ) -> list[RecoveryOutcome]:
        """Recover the local states of the plans; return the outcome of each. Raise the worst error.

        Without `rebuilds`, states that would have to be rebuilt from the log are left as they are. Rebuilds are done
        beside batches.
        """
        if self._is_starting() and not rebuilds:
            return outcomes_of(list(recover_states(attempt, plans, rebuilds=False)))
        answers = {
            put(self._lane(worker, rebuilds), Item(self._recovery, _recover_group, (group, rebuilds), attempt)): group
            for worker, group in self._groups(attempt, plans).items()
        }
        wait(answers)
        return outcomes_of([each for answer, group in answers.items() for each in _answers(answer, group)])

    def give_up(self) -> None:
        """Cancel the recovery of local states. A state generation that is not complete is never used."""
        self._workers.cancel(self._recovery)

    @property
    def cores(self) -> int:
        """Return how many tasks run at once."""
        return len(self._workers.ready())

    def warm_up(self, config: OperatorRules) -> None:
        """Import and compile what a batch needs on the workers.

        While Spark is starting, that happens in the background, and in this process as well. What this process has
        loaded is excluded from its garbage collections, during which no batch would go on.
        """
        if self._warm is None and self._workers.starts_in_background:
            self._warm = in_background(lambda: self._workers.warm_up(self._owner, config), "warm-up")
        if self._is_starting():
            warm_up(config)
        else:
            self._workers.warm_up(self._owner, config)
            freeze_loaded_objects()

    def check_lake(self, log: Lake) -> None:
        """Raise EngineError unless driver and executors share the lake of the log."""
        if not self._workers.starts_in_background:  # executors of a StartingSpark are on this machine
            check_shared(log, lambda probe: self._answers_to(log, probe))

    def _answers_to(self, log: Lake, probe: str) -> list[ProbeResult]:
        workers = self._workers.ready()
        return _results([put(worker.batch, Item(self._owner, answer_probe, (log, probe))) for worker in workers])

    def make_durable(self, attempt: Attempt) -> None:
        """Fsync the operator's local states on every machine that has some."""
        if self._is_starting():
            make_durable(attempt)
            return
        one_each = {worker.home and worker.home.place: worker for worker in self._workers.ready()}
        _results([put(worker.batch, Item(self._owner, make_durable, (), attempt)) for worker in one_each.values()])

    def each(self, work: Callable[[Any], Answer], items: Sequence[Any]) -> list[Answer]:
        """Run the work on each item, beside batches; return the results in order."""
        if not items:
            return []
        workers = self._workers.ready()
        lanes = [self._workers.beside(workers[number % len(workers)], "beside") for number in range(len(items))]
        return _results([put(lane, Item(self._owner, work, (item,))) for lane, item in zip(lanes, items, strict=True)])

    def each_sequentially(self, work: Callable[[Any], Answer], items: Sequence[Any]) -> list[Answer]:
        """Run the work on one item at a time, beside batches; return the results in order."""
        found: list[Answer] = []
        for item in items:
            lane = self._workers.beside(min(self._workers.ready(), key=_load_in_background), "background")
            found += _results([put(lane, Item(self._owner, work, (item,)))])
        return found

    def _is_starting(self) -> bool:
        """Return True while workers are not warm yet and this process does their work."""
        return self._warm is not None and not self._warm.done()

    def _groups(self, attempt: Attempt, plans: Sequence[PartitionPlan]) -> dict[Worker, list[PartitionPlan]]:
        """Return the plans by the home workers of their partitions."""
        partitions = [plan.partition for plan in plans]
        at_home = self._workers.at_home(self._owner, attempt.operator, partitions, self._limit)
        groups: dict[Worker, list[PartitionPlan]] = {}
        for plan in plans:
            groups.setdefault(at_home[plan.partition], []).append(plan)
        return groups

    def _lane(self, worker: Worker, rebuilds: bool) -> Lane:
        return self._workers.beside(worker, "beside") if rebuilds else worker.batch


def _gathered(groups: Mapping[Worker, list[PartitionPlan]]) -> dict[Worker, list[PartitionPlan]]:
    """Return the groups, with those of one place in one if they are few records.

    All workers of a place have its local states. What one of them does costs half as many requests as what two do.
    """
    by_place = defaultdict[str, list[Worker]](list)
    for worker in groups:
        by_place[worker.home.place if worker.home else ""].append(worker)
    found: dict[Worker, list[PartitionPlan]] = {}
    for place, workers in by_place.items():
        together = sorted((plan for worker in workers for plan in groups[worker]), key=_partition)
        # rule: few-records-gathered
        if place and is_one_share(together):
            found[min(workers, key=_turn)] = together
        else:
            found |= {worker: groups[worker] for worker in workers}
    return found


def _partition(plan: PartitionPlan) -> int:
    return plan.partition


def _turn(worker: Worker) -> tuple[int, str]:
    """Return what is smallest for the worker that is free first, and the same one each time if several are."""
    return worker.batch.load, worker.home.name if worker.home else ""


def _run_group(attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult | PartitionFailure]:
    return list(run_group(attempt, plans))


def _recover_group(
    attempt: Attempt, plans: Sequence[PartitionPlan], rebuilds: bool
) -> list[RecoveryOutcome | PartitionFailure]:
    return list(recover_states(attempt, plans, rebuilds=rebuilds))


def _answers(answer: Future[list[Any]], plans: Sequence[PartitionPlan]) -> list[Any]:
    """Return the answers of a worker; for a lost one a failure of each plan. Raise the error of a task that failed."""
    try:
        return answer.result()
    except WorkerLost as lost:
        # rule: lost-worker-fails-plans
        return [PartitionFailure(partition=plan.partition, error=lost, trace="") for plan in plans]


def _results(answers: Sequence[Future[Answer]]) -> list[Answer]:
    """Wait for all answers and return them. Raise EngineError if one has failed."""
    wait(answers)
    return [answer.result() for answer in answers]


def _load_in_background(worker: Worker) -> int:
    lane = worker.beside.get("background")
    return 0 if lane is None else lane.load
