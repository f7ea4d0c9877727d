"""A task's share of a micro-batch: some partitions, whose rows go to one data file.

The order of the steps is that of `docs/protocol.md`. For each partition: lock, recover, fetch, dirty header, kernel,
undo rows, complete header. When all partitions have got so far, their transactions are opened, and beside that the data
file is written and the topics are looked up again; the locks are held until all of it is done. A task commits nothing:
only the driver's Delta commit makes its work count. If anything fails after the kernel, here or elsewhere, the next
attempt undoes the change of the local states.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from pyspark import TaskContext

from tidegate.contracts.clock import Clock
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import EngineError, Superseded, TidegateError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.operator import OperatorState, ReadTable, StepResult, TableReader
from tidegate.contracts.records import Records
from tidegate.runtime.environment import REAL
from tidegate.runtime.kafka.fetch import Fetched
from tidegate.runtime.kafka.request_retries import Deadline
from tidegate.runtime.publishing.encoding import Opened, Prepared
from tidegate.runtime.task.messages import (
    Attempt,
    KafkaAttempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
    RecoveryOutcome,
    TablePlan,
)
from tidegate.runtime.task.ports import KafkaPort, Port, Worked
from tidegate.runtime.task.shares import SHARING, shares
from tidegate.runtime.task.warm_up import freeze_loaded_objects, warm_codec, warm_operator
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.local.local_state import LOCK_TIMEOUT_S, LocalState, partitions_here
from tidegate.state.local.recovery import PartitionLog, Recovered, choose_recovery
from tidegate.state.protocol_decisions import RecoveryMethod, RecoveryPlan
from tidegate.state.raised_offsets import raised_now

Done = TypeVar("Done")

_TABLES = (("state", "changes"), ("emission", "emissions"), ("late", "late"), ("rejected", "rejected"))


class Stopwatch:
    """The seconds spent in each named part of some work; the parts follow each other."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock, self._since = clock, clock.monotonic()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to `part`."""
        now = self._clock.monotonic()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now


def run_group(attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> Iterator[PartitionResult | PartitionFailure]:
    """Run the plans, some in parallel, and yield a result for each, in order, or the failures if there are some."""
    freeze_loaded_objects()
    port = KafkaPort(attempt=attempt, deadline=Deadline(attempt.deadline_s, attempt.environment.clock))
    return iter(run_plans(attempt, plans, port))


def recover_states(
    attempt: Attempt, plans: Sequence[PartitionPlan], *, rebuilds: bool
) -> Iterator[RecoveryOutcome | PartitionFailure]:
    """Recover the local states of the plans, some in parallel, and yield the outcomes in order.

    Without `rebuilds`, leave the states that have to be rebuilt as they are. No deadline applies: no transaction is
    open in Kafka meanwhile, and recovered states are kept.
    """
    return attempt.environment.map_parallel(
        lambda plan: _as_answer(plan, lambda: _recover_state(attempt, plan, rebuilds=rebuilds)), plans
    )


def _recover_state(attempt: Attempt, plan: PartitionPlan, *, rebuilds: bool) -> RecoveryOutcome:
    clock, operator = attempt.environment.clock, attempt.environment.operator(attempt.config)
    began = clock.monotonic()
    with _locked_state(attempt, plan.partition) as local:
        how = choose_recovery(local, operator, plan.wanted, plan.stream_time)
        if not rebuilds and how.method is RecoveryMethod.REBUILD and plan.wanted.last is not None:
            return RecoveryOutcome(plan.partition, False, how, 0.0)
        with _replicas(attempt, plan):
            recovered = attempt.environment.recover(local, operator, plan.wanted, _log_of(attempt, plan))
    return RecoveryOutcome(plan.partition, True, recovered.plan, clock.monotonic() - began)


def run_plans(attempt: Attempt, plans: Sequence[PartitionPlan], port: Port) -> list[PartitionResult | PartitionFailure]:
    """Run the plans and return a result for each, or the failures if there are some: no exception leaves the task.

    The first result has the data file, which all of them share. If a partition fails, nothing is written for others.
    """
    with ExitStack() as locks:
        work = attempt.environment.map_parallel(lambda share: _changed(attempt, share, port, locks), shares(plans))
        changed = [answer for answers in work for answer in answers]
        if failed := [answer for answer in changed if isinstance(answer, PartitionFailure)]:
            return [*failed]
        # rule: lock-until-files
        return _written_out(attempt, [answer for answer in changed if isinstance(answer, _Changed)], port)


def _written_out(attempt: Attempt, done: Sequence[_Changed], port: Port) -> list[PartitionResult | PartitionFailure]:
    """Open the transactions of the partitions, beside that write their rows and look up the topics; return the answers.

    What is sent is encoded before, so that the rows are written while the broker is waited for.
    """
    # rule: transaction-of-task
    sharing = [done[at : at + SHARING] for at in range(0, len(done), SHARING)]
    prepared = [_prepared(share, port) for share in sharing]
    if failed := [answer for answer in prepared if isinstance(answer, PartitionFailure)]:
        return [*failed]
    parts: list[Callable[[], Any]] = [
        partial(_opened, share, output, port)
        for share, output in zip(sharing, prepared, strict=True)
        if isinstance(output, Prepared)
    ]
    first = done[0].ready.plan
    parts += [lambda: _as_answer(first, lambda: _write(attempt, done)), lambda: _as_answer(first, port.topics)]
    *opened, files, topics = attempt.environment.map_waiting(lambda part: part(), parts)
    for one in done:
        one.ready.watch.lap("files")  # beside the output
    if failed := [answer for answer in (files, topics, *opened) if isinstance(answer, PartitionFailure)]:
        return [*failed]
    transactions = {partition: each for each in opened for partition in each.partitions}
    head, *others = [_result(one, transactions.get(one.ready.plan.partition)) for one in done]
    return [replace(head, files=files, topics=topics), *others]


def _prepared(share: Sequence[_Changed], port: Port) -> Prepared | PartitionFailure | None:
    """Prepare the output of these partitions for a transaction; None without any."""
    worked = [Worked(one.ready.plan, one.step) for one in share]
    return _as_answer(share[0].ready.plan, lambda: port.prepare(worked))


def _opened(share: Sequence[_Changed], prepared: Prepared, port: Port) -> Opened | PartitionFailure:
    """Open the transaction with the output of these partitions."""
    opened = _as_answer(share[0].ready.plan, lambda: port.open(prepared))
    for one in share:
        one.ready.watch.lap("output")
    return opened


def _as_answer(plan: PartitionPlan, work: Callable[[], Done]) -> Done | PartitionFailure:
    try:
        _refuse_retries()
        return work()
    except TidegateError as error:
        return _failure(plan, error)
    except Exception as error:
        wrapped = EngineError(f"partition {plan.partition}: {type(error).__name__}", value=error, remedy="see trace")
        return _failure(plan, wrapped)


def _failure(plan: PartitionPlan, error: TidegateError) -> PartitionFailure:
    return PartitionFailure(partition=plan.partition, error=error, trace=traceback.format_exc())


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A partition whose local state is locked, and is that before the batch.

    `replicas`: how the replica of each table that the operator reads was recovered. `watch`: of all partitions that are
    worked on together.
    """

    plan: PartitionPlan
    local: LocalState
    state: OperatorState
    recovery: RecoveryPlan
    replicas: Mapping[str, RecoveryPlan]
    watch: Stopwatch


@dataclass(frozen=True, kw_only=True)
class _Changed:
    """A partition whose local state is that after the batch, and what its kernel has returned."""

    ready: _Ready
    step: StepResult
    read: Fetched
    stopped_at: int | None


def _changed(
    attempt: Attempt, plans: Sequence[PartitionPlan], port: Port, locks: ExitStack
) -> list[_Changed | PartitionFailure]:
    """Read the partitions' input and change their local states, in turn; `locks` keeps the states locked."""
    watch = Stopwatch(attempt.environment.clock)
    ready = [_as_answer(plan, partial(_ready, attempt, plan, locks, watch)) for plan in plans]
    if failed := [answer for answer in ready if isinstance(answer, PartitionFailure)]:
        return [*failed]
    together = _as_answer(plans[0], lambda: port.read_together(plans))
    if isinstance(together, PartitionFailure):
        return [together]
    watch.lap("fetch")
    return [
        _as_answer(each.plan, partial(_stepped, attempt, each, port, together))
        for each in ready
        if isinstance(each, _Ready)
    ]


def _ready(attempt: Attempt, plan: PartitionPlan, locks: ExitStack, watch: Stopwatch) -> _Ready:
    """Lock and recover the partition's local state; `locks` keeps it locked."""
    operator = attempt.environment.operator(attempt.config)
    local = locks.enter_context(_locked_state(attempt, plan.partition))
    replicas = locks.enter_context(_replicas(attempt, plan))
    recovered = attempt.environment.recover(local, operator, plan.wanted, _log_of(attempt, plan))
    for name, replica in replicas.items():
        cast(TableReader, recovered.state).read_table(replica.state, plan.tables[name].open_until, name)
    if plan.hold is not None:
        cast(ReadTable, recovered.state).hold(*plan.hold)
    watch.lap("recover")
    return _Ready(
        plan=plan,
        local=local,
        state=recovered.state,
        recovery=recovered.plan,
        replicas={name: replica.plan for name, replica in replicas.items()},
        watch=watch,
    )


def _stepped(attempt: Attempt, ready: _Ready, port: Port, together: Mapping[int, Fetched]) -> _Changed:
    """Change the partition's local state by its input, which is read here unless it was read together with others'."""
    plan, local, watch = ready.plan, ready.local, ready.watch
    # rule: input-first
    fetched = together.get(plan.partition) or port.read(plan)
    watch.lap("fetch")
    # rule: dirty-first
    local.begin(attempt.epoch, attempt.batch, attempt.attempt)
    reach("after_dirty_header")
    raised = raised_now(plan.raised)
    # rule: complete-after-kernel, raised-offsets/records
    step = _act(attempt, plan, ready.state, fetched.records.raised(raised))
    # rule: undo-failed-attempt/kept
    local.complete(step.undo)
    reach("after_complete_header")
    watch.lap("kernel")
    # rule: raised-offsets/stopped
    stopped_at = None if step.stopped_at is None else step.stopped_at - raised
    late, rejected = (fetched.with_origins(rows, raised) for rows in (step.late, step.rejected))
    return _Changed(
        ready=ready,
        step=replace(step, late=late, rejected=rejected),
        read=fetched if stopped_at is None else fetched.until(stopped_at),
        stopped_at=stopped_at,
    )


def _result(changed: _Changed, opened: Opened | None) -> PartitionResult:
    plan, step, read = changed.ready.plan, changed.step, changed.read
    return PartitionResult(
        partition=plan.partition,
        action=plan.action,
        next_offset=read.next_offset,
        stream_time=step.stream_time,
        counts=step.counts,
        measures=step.measures,
        files=(),
        transaction=opened,
        stopped_at=changed.stopped_at,
        stopped_by=step.stopped_by,
        floor=step.floor,
        needs=step.needs,
        reader_time=step.reader_time,
        recovery=changed.ready.recovery,
        epoch=read.epoch,
        reached=read.reached,
        further=read.further,
        replicas=changed.ready.replicas,
        ledger=step.ledger,
        seconds=changed.ready.watch.seconds,
    )


def _locked_state(
    attempt: Attempt, partition: int, timeout_s: float = LOCK_TIMEOUT_S
) -> AbstractContextManager[LocalState]:
    """Return a context manager that locks the partition's local state and yields it."""
    return LocalState.lock(
        attempt.state,
        partition,
        operator=attempt.operator,
        table_id=attempt.table_id,
        token=(attempt.epoch, attempt.batch),
        timeout_s=timeout_s,
        machine=attempt.environment.machine,
        clock=attempt.environment.clock,
    )


def _log_of(attempt: Attempt, plan: PartitionPlan) -> PartitionLog:
    return PartitionLog(
        log=attempt.log,
        version=attempt.version,
        partition=plan.partition,
        stream_time=plan.stream_time,
    )


@contextmanager
def _replicas(attempt: Attempt, plan: PartitionPlan) -> Iterator[dict[str, Recovered]]:
    """Yield by name a replica of the partition of each table at the version that the batch is pinned to."""
    with ExitStack() as locks:
        yield {
            name: locks.enter_context(_replica(attempt, plan.partition, table)) for name, table in plan.tables.items()
        }


@contextmanager
def _replica(attempt: Attempt, partition: int, table: TablePlan) -> Iterator[Recovered]:
    """Yield the replica of a table's partition at the version that the batch is pinned to."""
    wanted, operator = table.wanted, attempt.environment.operator(table.config)
    token = (wanted.epoch, wanted.batch)
    with LocalState.lock(
        attempt.state,
        partition,
        operator=table.name,
        table_id=table.table_id,
        token=token,
        machine=attempt.environment.machine,
        clock=attempt.environment.clock,
    ) as local:
        source = PartitionLog(
            log=table.log,
            version=table.version,
            partition=partition,
            stream_time=table.stream_time,
            tail=table.tail,
        )
        replica = attempt.environment.recover(local, operator, wanted, source)
        if table.floor is not None:
            cast(ReadTable, replica.state).hold(table.floor, table.floor)
        yield replica


def _refuse_retries() -> None:
    context = TaskContext.get()
    # rule: no-task-retry
    if context is not None and context.attemptNumber() > 0:
        raise EngineError(
            "Spark has retried a task by itself",
            value=f"attempt {context.attemptNumber()}",
            remedy="do nothing after the loss of a machine: the driver retries with a new attempt",
        )


def _act(attempt: Attempt, plan: PartitionPlan, state: OperatorState, records: Records) -> StepResult:
    if plan.action == "idle":
        reach("during_idle_advance")
        return state.advance(plan.advance_to, attempt.clock)
    if plan.action == "flush":
        return state.flush()
    return state.step(records, attempt.clock)


def _write(attempt: Attempt, changed: Sequence[_Changed]) -> tuple[DataFile, ...]:
    rows = [Rows(kind, one.ready.plan.partition, getattr(one.step, name)) for kind, name in _TABLES for one in changed]
    naming = Naming(attempt.log_format, attempt.batch, attempt.attempt, attempt.clock)
    return write_rows(attempt.log, naming, rows, topic=attempt.topic)


def warm_up(config: OperatorRules) -> int:
    """Import and compile in this worker process all that a batch of the operator needs; return the process id."""
    warm_operator(REAL.operator(config))
    warm_codec()
    freeze_loaded_objects()
    return os.getpid()


def make_durable(attempt: Attempt) -> list[int]:
    """Sync this machine's trusted local states to disk, mark them as durable, and return their partitions.

    States that a newer attempt owns, or that cannot be trusted, are left as they are.
    """
    return [
        partition
        for partition in partitions_here(attempt.state, attempt.operator, attempt.table_id)
        if _made_durable(attempt, partition)
    ]


def drop_states(attempt: Attempt, partitions: Collection[int]) -> list[int]:
    """Remove this machine's copies of the states of partitions that are at home elsewhere; return those removed.

    A copy that a task still works on, or that a newer attempt owns, is left as it is.
    """
    here = set(partitions_here(attempt.state, attempt.operator, attempt.table_id))
    return [partition for partition in sorted(here.intersection(partitions)) if _dropped(attempt, partition)]


def _dropped(attempt: Attempt, partition: int) -> bool:
    with suppress(Superseded, EngineError), _locked_state(attempt, partition, timeout_s=0.0) as local:
        if local.header is not None:
            local.drop()
            return True
    return False


def _made_durable(attempt: Attempt, partition: int) -> bool:
    with suppress(Superseded), _locked_state(attempt, partition) as local:
        if local.trusted:
            local.make_durable()
            return True
    return False
