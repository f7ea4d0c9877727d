"""The driver of one operator: claim it, then run one micro-batch after the other.

One micro-batch = one Spark job + one Delta commit + one Kafka transaction per partition with output. The rules are
those of `docs/protocol.md`. The decisions are pure functions in `state.decisions`, `batch_loop.planning` and
`batch_loop.metadata`; this module puts them in order.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, TypeVar
from uuid import uuid4

from tidegate.contracts.errors import (
    BufferFull,
    EngineError,
    Fenced,
    InputTruncated,
    OffsetsGone,
    StartOver,
    Superseded,
    TidegateError,
    Unavailable,
)
from tidegate.contracts.kill_points import reach
from tidegate.contracts.naming import group_id
from tidegate.contracts.schema import BatchMeta
from tidegate.operators.registry import operator_for
from tidegate.runtime import clock
from tidegate.runtime.batch_loop import pace, preflight
from tidegate.runtime.batch_loop.alignment import Seen, readers_of
from tidegate.runtime.batch_loop.background_compaction import Compacting
from tidegate.runtime.batch_loop.claim import Claimant
from tidegate.runtime.batch_loop.metadata import after_batch
from tidegate.runtime.batch_loop.planning import (
    plan_apply,
    plan_flush,
    plan_held,
    plan_idle,
    plan_records,
)
from tidegate.runtime.batch_loop.requests import Request, Requests
from tidegate.runtime.batch_loop.retries import Retries
from tidegate.runtime.batch_loop.state_recovery import Recovering
from tidegate.runtime.batch_loop.table_pin import PinnedTable, pinned_table
from tidegate.runtime.configuration.application import Application, config_of
from tidegate.runtime.configuration.changes import check_changes
from tidegate.runtime.control_sync.recording import Recorder
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient, NoSuchTopic, client
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.messages import KafkaAttempt, PartitionPlan, PartitionResult
from tidegate.runtime.publishing import topics
from tidegate.runtime.publishing.publication import Publication
from tidegate.runtime.spark.jobs import Jobs
from tidegate.runtime.task.results import results_of
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.runtime.telemetry.observation import Observation
from tidegate.runtime.threads import in_background
from tidegate.state import batch_metadata
from tidegate.state.decisions import Commit, RecoveryMethod
from tidegate.state.delta_log.data_files import DataFile, delete_attempt
from tidegate.state.delta_log.log_entries import check_log_exists
from tidegate.state.delta_log.operator_log import OperatorLog

lines = logging.getLogger("tidegate")

ATTEMPT_DEADLINE_S = 60.0
"""Deadline for the Kafka work of a task, for all of its partitions; the transaction timeout is three times as long."""
IDLE_POLL_S = 0.01
"""Pause after a round that found nothing to do, if `trigger` is shorter."""
COMMIT_OFFSETS_EVERY_S = 5.0
"""How often the offsets of partitions without output are committed to the consumer group."""
REPORT_WAIT_AFTER_S = 5.0
"""A wait for the table is reported after this long; a shorter one is the ordinary duration of the table's batch."""
PROBE_TIMEOUT_S = 5.0
"""Timeout of the check whether a broker answers; a signal is handled after this at the latest."""

Answer = TypeVar("Answer")
Listener = Callable[[BatchMeta, dict[str, float]], None]


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What a service passes to its driver."""

    spark: Any
    application: Application
    name: str
    listener: Listener = lambda meta, seconds: None


class OperatorDriver:
    """The driver of one operator of an application, in this process."""

    def __init__(self, wiring: Wiring) -> None:
        self.name, self._listener = wiring.name, wiring.listener
        self._jobs = Jobs(wiring.spark)
        self._configure(wiring.application)
        self._state = self._application.state / self._application.application
        self.requests = Requests(self._state / self.name)
        self._claimant = Claimant(self._application, self.name, self._kafka, deadline_s=ATTEMPT_DEADLINE_S)
        self._condition = DriverStatusFile(self._state / self.name)
        self._persistence = Retries(self.name, self._condition)
        self._recorder = Recorder(self._application, self.name, self._condition)
        self._recovering = Recovering(self._jobs, self._condition)
        self._log: OperatorLog
        self._publication: Publication | None = None
        self._lineage: dict[int, list[Commit]] = {}
        self._seconds: dict[str, float] = {}
        self._piece = pace.FIRST_BYTES
        self._owned = self._last_try_succeeded = self._shares_lake = False
        self._last_try_at: float | None = None
        self._waiting_since: float | None = None
        self._ends: dict[int, int] = {}
        self.newest: BatchMeta

    def observe(self) -> Observation:
        """Return a snapshot of the driver's progress, for another thread. This makes no request."""
        seen = Observation(
            operator=self.name,
            input=self._config.input,
            status=self._condition.last,
            loop_age_s=None if self._last_try_at is None else time.monotonic() - self._last_try_at,
            compactions=self._compacting.count,
            compaction_s=self._compacting.seconds,
        )
        newest: BatchMeta | None = getattr(self, "newest", None)
        if newest is None:
            return seen
        size = self._log.size
        return replace(seen, newest=newest, ends=self._ends, files=size.files, state_rows=size.state_rows)

    def _configure(self, application: Application) -> None:
        """Use this configuration from the next claim on."""
        self._application, self._config = application, application.operators[self.name]
        keep = application.keep_output
        self._compacting = Compacting(
            jobs=self._jobs,
            slot=operator_for(self._config).slot,
            keep_output_ms=None if keep == "forever" else keep,
            rewind_window_ms=self._config.rewind_window,
        )
        self._table = pinned_table(application, self.name)
        self._readers = readers_of(application, self.name)

    # ---- start

    def start(self) -> None:
        """Claim the operator, fence older drivers, and publish all committed output that is not published yet."""
        self._compacting.drop()
        warm = in_background(lambda: self._jobs.warm_up(self._config))  # takes about as long as the claim
        # rule: start-at-claim
        claimed = self._claimant.claim()
        self._log, self.newest, self._publication = claimed.log, claimed.meta, claimed.publication
        if claimed.config != self._config:
            self._configure(self._application.with_operator(self.name, claimed.config))
        self._recorder.note(self.newest)
        self._lineage = batch_metadata.lineage(self._log, self.newest)
        if self._table is not None:
            self._table.open(self.newest, clock.now_ms())
        self._owned = True
        self._recovering.mark_unready()
        warm.result()
        if not self._shares_lake:
            # rule: shared-lake/driver
            self._jobs.check_lake(self._log.path)
            self._shares_lake = True

    # ---- running

    def run(self, stop: Event, *, until_caught_up: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        """Start the operator if needed, then run batches until `stop` is set.

        With `until_caught_up`, return once the records present at startup are processed and published. `ready` is
        called once, after the start and before the first batch. At a normal end the driver drains, which makes the
        local state durable. Wait out outages of brokers and disks. Raise UserError, BufferFull, Fenced, StateError or
        EngineError.
        """
        with self._recorder.recording_run(), self._condition.recording_run(), self.requests.holding_lock():
            targets = self._persistently(self._targets, stop)
            if targets is None:
                return
            ready()
            try:
                self._run_on(stop, targets if until_caught_up else None)
            finally:
                self._recovering.give_up()
            self.drain()

    def _run_on(self, stop: Event, targets: dict[int, int] | None) -> None:
        pause_s = self._application.trigger / 1_000
        while not stop.is_set():
            moved = self._with_retries(self.round, stop)
            if targets is not None and self._reached(targets):
                return
            stop.wait(pause_s if moved else max(pause_s, IDLE_POLL_S))

    def _targets(self) -> dict[int, int]:
        return offsets.stable(self._kafka(), self._config.input)

    def round(self) -> bool:
        """Run one micro-batch if there is anything to do; return whether one was run.

        In the same round, answer requests and advance background work: recoveries, offset commits, compactions.
        """
        self.requests.take_lock()
        check_log_exists(self._log.path)
        if self._publication is not None:
            # rule: settled-before-plan
            self._publication.clear_up(self.newest)
        # rule: recover-before-attempt/batch
        plans = self._recovering.ready(self._plans(), self._prepared)
        if plans:
            self.batch(plans)
        else:
            self._check_no_successor()
        if self._publication is not None:
            self._publication.commit_offsets(self.newest, every_s=COMMIT_OFFSETS_EVERY_S)
        self._renew_lease_and_report_wait()
        self._answer_requests()
        self._compact_in_background()
        return bool(plans)

    def _renew_lease_and_report_wait(self) -> None:
        """Renew the lease on the table, and write to the status which partitions wait for the table."""
        if self._table is None:
            return
        if self._table.lease is not None:
            self._table.lease.renew(self.newest, clock.now_ms())
        waiting = [] if self._table.gates is None else self._table.gates.waiting()
        self._waiting_since = (self._waiting_since or time.monotonic()) if waiting else None
        if self._waiting_since is None or time.monotonic() - self._waiting_since >= WAIT_TOLD_AFTER_S:
            self._condition.write_waits(self._table.name, waiting)

    def batch(self, plans: Sequence[PartitionPlan]) -> None:
        """Run, commit and publish one micro-batch. Raise BufferFull afterwards if a bound stopped a partition."""
        results = self._commit(plans)
        batch_metadata.extend_lineage(self._lineage, self.newest)
        try:
            self._publish(results)
        finally:  # the batch is committed, even if publishing it failed
            self._listener(self.newest, self._seconds)
        for result in results:
            if result.stopped_at is not None:
                place = f"offset {result.stopped_at} of partition {result.partition}"
                raise BufferFull.before(place, self.name, result.stop_reason)

    def flush(self) -> bool:
        """Release all held records, with cause `flush`. Return False if local states are not ready for that."""
        return self._run_if_all_ready(plan_flush(self.newest, self._config.input, self._producers(), self._lineage))

    def _run_if_all_ready(self, plans: Sequence[PartitionPlan]) -> bool:
        """Run the plans as one batch if all of their local states are ready; return whether they are."""
        ready = self._recovering.ready(plans, self._prepared)
        if ready:
            self.batch(ready)
        return len(ready) == len(plans)

    def apply(self) -> bool:
        """Apply the claimed configuration to the held records. Return False if local states are not ready for that."""
        return self._run_if_all_ready(plan_apply(self.newest, self._config.input, self._producers(), self._lineage))

    def reconfigure(self, request: Request) -> None:
        """Claim under the requested configuration in the next round, or refuse the request with the reason.

        Raise Unavailable while no broker answers: the request stays pending.
        """
        try:
            config = config_of(json.loads(self.requests.content(request)))
            check_changes(self.newest, config)
            preflight.check_surroundings(self._kafka(), self.newest, config)
        except Unavailable:
            raise
        except (TidegateError, ValueError, OSError) as error:
            lines.warning("%s: the configuration stays as it is: %s", self.name, error)
            self.requests.refuse(request, " ".join(str(error).split()))
            return
        self._compacting.drop()
        self._configure(self._application.with_operator(self.name, config))
        self._claimant.reconfigure(self._application)
        self._owned = False

    def compact(self) -> None:
        """Compact the log now: rewrite each partition's state as a snapshot and merge small files.

        Later results are the same as without the compaction.
        """
        self._compacted(self._start_over_if_unclear(lambda: self._compacting.compact_now(*self._to_compact())))

    def drain(self) -> None:
        """Sync the local state of every partition to disk, so that a reboot need not rebuild it.

        Stop a background compaction. If Kafka can be reached, abort open transactions and commit the log's offsets to
        the consumer group. A failed sync is logged: the states are then rebuilt after a reboot.
        """
        self._compacting.stop()
        if self._publication is not None:
            with suppress(EngineError):  # the next driver does it
                self._kafka().probe(PROBE_TIMEOUT_S)
                # rule: abort-at-end
                self._publication.abort(sorted(self._publication.unclear))
                self._publication.commit_offsets(self.newest)
        if not self.newest.last:
            return
        try:
            self._jobs.make_durable(self._attempt(self.newest.batch + 1, "drain", self.newest.clock))
        except EngineError as error:
            line = "%s: after a reboot its state will be rebuilt: %s"
            lines.warning(line, self.name, error, extra=log_fields(self.name, batch=self.newest.batch))

    def _plans(self) -> list[PartitionPlan]:
        topic, idle_after = self._config.input, self._config.idle_after
        # rule: stable-offsets/planned
        ends = self._ends = offsets.stable(self._kafka(), topic)
        if self._table is not None:
            self._pin_table(self._table)
        # rule: topic-ids-checked
        self._check_topics()
        # rule: truncated-input/end
        if any(end < self.newest.offsets[topic].get(partition, 0) for partition, end in ends.items()):
            preflight.check_nothing_truncated(self._kafka(), self.newest, self._config)
        if first := plan_apply(self.newest, topic, self._producers(), self._lineage):
            return first
        full = self._table.gates.full() if self._table is not None and self._table.gates is not None else ()
        plans = plan_records(self.newest, topic, ends, self._producers(), self._lineage, full)
        plans += self._plans_of_waiting({plan.partition for plan in plans})
        if idle_after is None:
            return plans
        busy = {plan.partition for plan in plans}
        # rule: idle-at-high-watermark/read
        begun, now = offsets.latest(self._kafka(), topic), clock.now_ms()
        return plans + plan_idle(self.newest, topic, begun, now, idle_after, self._producers(), self._lineage, busy)

    def _pin_table(self, table: PinnedTable) -> None:
        """Pin the table. With gates, first read the ends of its topic; those of the stream were read before that."""
        if table.gates is not None:
            table.gates.note_ends(self.newest, offsets.latest(self._kafka(), table.topic))
        table.pin()

    def _plans_of_waiting(self, busy: Collection[int]) -> list[PartitionPlan]:
        """Plan partitions without new records whose waiting records may go on: the table has moved, or time is up."""
        if self._table is None:
            return []
        moved = self._table.partitions_to_resume(self.newest, clock.now_ms()) - set(busy)
        return plan_held(self.newest, self._config.input, self._producers(), self._lineage, moved)

    def _check_topics(self) -> None:
        """Raise if a topic changed since the claim. This makes two requests to a broker."""
        topics = preflight.find_topics(self._kafka(), self._config, self.newest.topics)
        preflight.check_topics(self.newest, self._config, topics)

    # ---- retries

    def _with_retries(self, work: Callable[[], Answer], stop: Event) -> Answer | None:
        """Return the work's result; None if `stop` was set first. Failures are retried as `retries` defines."""
        return self._retries.run(lambda: self._run_owned(work), stop)

    def _run_owned(self, work: Callable[[], Answer]) -> Answer:
        """Run the work and return its result, after a failure only once a broker answers.

        Claim the operator first if it is not certain that this driver still owns it.
        """
        self._last_try_at = time.monotonic()
        try:
            if not self._last_try_succeeded:
                self._kafka().probe(PROBE_TIMEOUT_S)
            if not self._owned:
                self.start()
            self._last_try_succeeded = False
            answer = work()
        # rule: fenced-starts-over, refusal-starts-over
        except (StartOver, Fenced, Superseded):
            self._owned = False
            raise
        except NoSuchTopic as error:
            if not self._owned:
                raise
            raise preflight.gone(error) from error
        finally:
            self._condition.write_unclear(self._publication.unclear if self._publication else ())
        self._well = True
        return answer

    # ---- one batch

    def _commit(self, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        """Run the plans, commit their results to the log, and return them.

        A failed attempt is cleaned up: its files are deleted and its transactions aborted. If Kafka does not
        answer, the next round aborts them.
        """
        # rule: attempt-of-its-own
        batch, attempt, now = self.newest.batch + 1, uuid4().hex, clock.now_ms()
        started = time.monotonic()
        try:
            readers, plans = self._with_holds(self._pinned(plans), now)
            answers = self._results(self._attempt(batch, attempt, now), plans)
            results = [self._recovering.with_recovery(result) for result in answers]
            # rule: topic-ids-checked
            self._check_topics()  # what was read is of these topics
            # rule: one-clock
            meta = after_batch(
                self.newest,
                results,
                topic=self._config.input,
                batch=batch,
                attempt=attempt,
                clock=now,
                inputs={} if self._table is None else self._table.inputs,
                readers=readers,
                gates={plan.partition: plan.table.open_until for plan in plans if plan.table is not None},
            )
        except Exception:
            self._abort(plans, attempt)
            raise
        ran = time.monotonic()
        self._report_recoveries(meta, results)
        # rule: kill-points
        reach("before_commit")
        # rule: commit-then-publish
        self._to_log(meta, [file for result in results for file in result.files])
        # rule: kill-points
        reach("after_commit")
        if self._table is not None:
            self._table.note_used(plans, results, now)
        if self._readers is not None:
            self._readers.log_dropped_versions(plans, results, batch)
        self._seconds = {"job": ran - started, **_slowest(results), "commit": time.monotonic() - ran}
        self._piece = pace.next_piece(self._piece, ran - started, pace.left_behind(plans, results))
        return results

    def _prepared(self, plans: Sequence[PartitionPlan]) -> tuple[KafkaAttempt, Sequence[PartitionPlan]]:
        """Return an attempt for recovery alone, and the plans, pinned to the table.

        Local states bear the commit that they are recovered to, never this attempt.
        """
        return self._attempt(self.newest.batch + 1, "recovery", self.newest.clock), self._pinned(plans)

    def _pinned(self, plans: Sequence[PartitionPlan]) -> Sequence[PartitionPlan]:
        """Return the plans, pinned to the newest version of the table if the operator reads one."""
        table = self._table
        if table is None:
            return plans
        table.pin()
        return [replace(plan, table=table.plan(plan)) for plan in plans]

    def _with_holds(self, plans: Sequence[PartitionPlan], now: int) -> tuple[Seen, Sequence[PartitionPlan]]:
        """Return the readers of this table, and the plans with what each partition has to keep for them."""
        if self._readers is None:
            return {}, plans
        readers, holds = self._readers.held(self.newest, [plan.partition for plan in plans], now)
        return readers, [replace(plan, hold=holds[plan.partition]) for plan in plans]

    def _results(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        """Run the plans and return each partition's result. An error about lost input names all affected partitions."""
        try:
            return results_of(self._jobs.run(attempt, plans))
        except OffsetsGone:
            starts = offsets.earliest(self._kafka(), self._config.input)
            preflight.check_nothing_lost(self.newest, self._config, starts)
            raise
        except InputTruncated:
            preflight.check_nothing_truncated(self._kafka(), self.newest, self._config)
            raise

    def _report_recoveries(self, meta: BatchMeta, results: Sequence[PartitionResult]) -> None:
        for partition, recovery in meta.recovered.items():
            fields = log_fields(self.name, partition=partition, batch=meta.batch)
            lines.info("%s, partition %d: local state: %s", self.name, partition, recovery, extra=fields)
            self._condition.write_recovered(partition, recovery)
        for result in results:
            if result.replica.startswith(RecoveryMethod.REBUILD.value):
                fields = log_fields(self.name, partition=result.partition, batch=meta.batch)
                line = "%s, partition %d: replica of the table: %s"
                lines.info(line, self.name, result.partition, result.replica, extra=fields)

    def _to_log(self, meta: BatchMeta, files: Sequence[DataFile]) -> None:
        try:
            self._start_over_if_unclear(lambda: self._log.commit(meta, files))
        except Exception:
            # rule: abort-before-waiting
            self._abort_opened(meta.opened)
            raise
        self.newest = meta
        self._recorder.note(meta)

    def _start_over_if_unclear(self, commit: Callable[[], Answer]) -> Answer:
        """Make the commit. Raise StartOver if its outcome is unclear, because only a new claim can settle that."""
        try:
            return commit()
        except EngineError as error:
            remedy = error.remedy or "it is settled by the next claim"
            raise StartOver(error.problem, value=error.value, remedy=remedy) from error

    def _publish(self, results: Sequence[PartitionResult]) -> None:
        started = time.monotonic()
        if self._publication is not None:
            opened: dict[int, Producer] = {
                r.partition: r.producer for r in results if r.producer is not None and r.producer.opened
            }
            self._publication.end(opened, self.newest)
        self._seconds["publish"] = time.monotonic() - started

    def _abort_opened(self, opened: Sequence[int]) -> None:
        """Abort the transactions, so that none stays open while the lake is away.

        If the batch was committed nevertheless, the next claim publishes it.
        """
        if self._publication is not None:
            with suppress(EngineError, Fenced):
                self._publication.abort(opened)

    def _abort(self, plans: Sequence[PartitionPlan], attempt: str) -> None:
        # rule: failed-attempt-files
        delete_attempt(self._log.path, self.newest.batch + 1, attempt)
        # rule: recover-before-attempt/failed
        self._recovering.mark_unready(plan.partition for plan in plans)
        if self._publication is not None:
            # rule: init-after-failure
            self._publication.mark_unclear(plan.partition for plan in plans)
            with suppress(EngineError):  # the next round does it
                self._publication.clear_up(self.newest)

    def _attempt(self, batch: int, attempt: str, now: int) -> KafkaAttempt:
        return KafkaAttempt(
            operator=self.name,
            config=self._config,
            topic=self._config.input,
            outlets=topics.configured(self._config),
            limits=self._publication.limits if self._publication else {},
            times_in_values=self._config.timestamp is not None,
            windows=self._config.adds_windows(),
            kafka=self._application.kafka,
            group=group_id(self._application.application, self.name),
            log=self._log.path,
            version=self._log.version,
            table_id=self._log.table_id,
            state=self._state,
            epoch=self.newest.epoch,
            batch=batch,
            attempt=attempt,
            clock=now,
            max_batch_bytes=self._piece,
            deadline_s=ATTEMPT_DEADLINE_S,
        )

    # ---- between batches

    def _answer_requests(self) -> None:
        for request in self.requests.pending():
            if not self._owned:  # a changed configuration is claimed before further requests are answered
                return
            if request.kind == "flush" and not self.flush():
                return
            if request.kind == "apply":
                self.reconfigure(request)
            elif request.kind == "compact":
                self.compact()
            self.requests.done(request)

    def _compact_in_background(self) -> None:
        """Start a background compaction if one is due, and commit the one that has finished."""
        self._compacting.begin_if_due(*self._to_compact())
        worked_out = self._compacting.take_finished(self._log, self.newest)
        if worked_out is not None:
            meta, commit = worked_out
            self._start_over_if_unclear(commit)
            self._compacted(meta)

    def _to_compact(self) -> tuple[OperatorLog, BatchMeta, dict[int, int] | None]:
        return self._log, self.newest, self.newest.output if self._publication else None

    def _compacted(self, meta: BatchMeta) -> None:
        reach("after_compaction_commit")
        self.newest = meta
        self._recorder.note(meta)
        self._lineage = batch_metadata.above_snapshots(self._lineage, meta)

    def _check_no_successor(self) -> None:
        """Raise StartOver if the log has an entry above this driver's own; without commits it would not notice."""
        if self._log.has_successor():
            raise StartOver("the log has an entry above this driver's own", value=self._log.version + 1)

    def _reached(self, targets: dict[int, int]) -> bool:
        reached = self.newest.offsets[self._config.input]
        settled = self._publication is None or not self._publication.unclear
        gates = None if self._table is None else self._table.gates
        settled = settled and (gates is None or gates.nothing_waits(self.newest))
        return settled and all(reached[partition] >= target for partition, target in targets.items())

    def _producers(self) -> dict[int, Producer]:
        return self._publication.producers if self._publication else {}

    def _kafka(self) -> KafkaClient:
        return client(self._application.kafka)


def _slowest(results: Sequence[PartitionResult]) -> dict[str, float]:
    """Return the seconds that the slowest partition spent in each step."""
    return max((result.seconds for result in results), key=lambda seconds: sum(seconds.values()))
