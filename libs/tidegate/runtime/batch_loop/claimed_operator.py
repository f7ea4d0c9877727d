"""The claimed operator: plan, run, commit and publish one micro-batch after the other, under one claim.

One micro-batch = one run of the workers + one Delta commit + one Kafka transaction per task with output. The rules are
those of `docs/protocol.md`. The decisions are pure functions in `state.protocol_decisions`, `batch_loop.planning` and
`batch_loop.next_metadata`; this module puts them in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from tidegate.contracts.batch_metadata import BatchMeta, Ends
from tidegate.contracts.errors import BufferFull, EngineError, Fenced, InputTruncated, OffsetsGone, StartOver
from tidegate.contracts.kill_points import reach
from tidegate.runtime.batch_loop import pace, preflight
from tidegate.runtime.batch_loop.background_compaction import Compacting
from tidegate.runtime.batch_loop.claim import Claimed
from tidegate.runtime.batch_loop.next_metadata import Alignment, after_batch
from tidegate.runtime.batch_loop.planning import (
    PlanBasis,
    plan_apply,
    plan_flush,
    plan_held,
    plan_idle,
    plan_records,
)
from tidegate.runtime.batch_loop.state_recovery import Recovering
from tidegate.runtime.batch_loop.table_pin import PinnedTables, open_tables
from tidegate.runtime.batch_loop.table_stream_alignment import readers_of
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.control_sync.recording import Recorder
from tidegate.runtime.environment import Environment
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.arrivals import Position
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.publishing.encoding import Opened
from tidegate.runtime.task.jobs import Jobs
from tidegate.runtime.task.messages import KafkaAttempt, PartitionPlan, PartitionResult
from tidegate.runtime.task.results import results_of
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.state import earlier_batches
from tidegate.state.delta_log.attempt_files import delete_attempt
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.protocol_decisions import Commit, RecoveryMethod

lines = logging.getLogger("tidegate")

ATTEMPT_DEADLINE_S = 60.0
"""Deadline for the Kafka work of a task, for all of its partitions; the transaction timeout is three times as long."""
COMMIT_OFFSETS_EVERY_S = 5.0
"""How often the offsets of partitions without output are committed to the consumer group."""
REPORT_WAIT_AFTER_S = 5.0
"""A wait for the table is reported after this long; a shorter one is the ordinary duration of the table's batch."""

Answer = TypeVar("Answer")
Listener = Callable[[BatchMeta, dict[str, float]], None]


@dataclass(frozen=True, kw_only=True)
class DriverParts:
    """The parts of a driver that outlive a claim; each claimed operator works with them.

    `listener` is called after each batch, with its metadata and the seconds that its steps took.
    """

    kafka: Callable[[], KafkaClient]
    environment: Environment
    jobs: Jobs
    recovering: Recovering
    status: DriverStatusFile
    recorder: Recorder
    listener: Listener


class ClaimedOperator:
    """The operator under one claim; each claim makes a new one.

    `newest`: the metadata of its newest commit. `ends`: the last stable offsets of the input topics, as of the newest
    plan. Before `open`, it has no tables.
    """

    def __init__(self, claimed: Claimed, application: Application, compacting: Compacting, driver: DriverParts) -> None:
        self.name, self.log, self.newest = claimed.meta.operator, claimed.log, claimed.meta
        self.publication = claimed.publication
        self.ends: Ends = {}
        self._leaders: dict[str, Mapping[int, int]] = {}
        self._application, self._config = application, claimed.config
        self._compacting, self._driver, self._kafka = compacting, driver, driver.kafka
        self._clock = driver.environment.clock
        self._tables = PinnedTables()
        self._readers = readers_of(application, self.name, self.log.lake)
        self._lineage: dict[int, list[Commit]] = {}
        self._seconds: dict[str, float] = {}
        self._bytes_per_partition = pace.FIRST_BYTES
        self._waiting_since: float | None = None

    def open(self) -> None:
        """Read the lineage of local states, which count as unready until they were recovered, and pin the tables."""
        self._driver.recorder.note(self.newest)
        self._lineage = earlier_batches.lineage(self.log, self.newest)
        lake, now = self._driver.environment.lake, self._clock.now_ms()
        self._tables = open_tables(self._application, self.name, self.newest, now, lake)
        self._driver.recovering.mark_unready()

    # ---- rounds

    def round(self) -> bool:
        """Run one micro-batch if there is anything to do; return whether one was run.

        In the same round, advance background work: recoveries, offset commits, log checkpoints, compactions.
        """
        self.log.check_own_entry()
        # rule: settled-before-plan
        self.publication.clear_up(self.newest)
        # rule: recover-before-attempt/batch
        plans = self._driver.recovering.ready(self._plans(), self._prepared)
        if plans:
            self.batch(plans)
        else:
            self._check_no_successor()
        self.publication.commit_offsets(self.newest, every_s=COMMIT_OFFSETS_EVERY_S)
        self.log.begin_checkpoint(lambda write: self._driver.environment.in_background(write, "checkpoint"))
        self._renew_lease_and_report_wait()
        self._compact_in_background()
        return bool(plans)

    def batch(self, plans: Sequence[PartitionPlan]) -> None:
        """Run, commit and publish one micro-batch. Raise BufferFull afterwards if a bound stopped a partition."""
        results, marked = self._commit(plans)
        earlier_batches.extend_lineage(self._lineage, self.newest)
        try:
            self._publish(results, marked)
        finally:  # the batch is committed, even if publishing it failed
            self._driver.listener(self.newest, self._seconds)
        for result in results:
            if result.stopped_at is not None:
                place = f"offset {result.stopped_at} of partition {result.partition}"
                raise BufferFull.before(place, self.name, result.stopped_by)

    def flush(self) -> bool:
        """Release all held records, with cause `flush`. Return False if local states are not ready for that.

        A changed configuration is applied first: what it no longer holds is released with its own cause.
        """
        # rule: apply-before-flush
        return self.apply() and self._run_if_all_ready(plan_flush(self._plan_basis()))

    def apply(self) -> bool:
        """Apply the claimed configuration to the held records. Return False if local states are not ready for that."""
        return self._run_if_all_ready(plan_apply(self._plan_basis()))

    def compact(self) -> None:
        """Compact the log now: rewrite each partition's state as a snapshot and merge small files.

        Later results are the same as without the compaction.
        """
        self._compacted(self._start_over_if_unclear(self._compact_now))

    def drain(self) -> None:
        """Sync the local state of every partition to disk, so that a reboot need not rebuild it.

        Stop a background compaction. If Kafka can be reached, abort open transactions and commit the log's offsets to
        the consumer group. A failed sync is logged: the states are then rebuilt after a reboot.
        """
        self._compacting.stop()
        with suppress(EngineError):  # the next driver does it
            self.publication.close(self.newest)
        if not any(known.begun for known in self.newest.partitions.values()):
            return
        try:
            self._driver.jobs.make_durable(self._attempt("drain", self.newest.clock))
        except EngineError as error:
            line = "%s: after a reboot its state will be rebuilt: %s"
            lines.warning(line, self.name, error, extra=log_fields(self.name, batch=self.newest.batch))

    def processed(self) -> Ends:
        """Return the input's offsets up to which all is processed and published; empty while anything waits."""
        settled = not self.publication.unclear and self._tables.nothing_waits(self.newest)
        return self.newest.read_to if settled else {}

    # ---- plans

    def stable_ends(self) -> Ends:
        """Return the last stable offsets of the input topics now."""
        return {topic: offsets.stable(self._kafka(), topic) for topic in self._config.inputs}

    def _plans(self) -> list[PartitionPlan]:
        topics, idle_after = self._config.inputs, self._config.idle_after
        leaders = {topic: self._kafka().leaders(topic) for topic in topics}
        # rule: stable-offsets/planned
        looks: list[Callable[[], Any]] = [partial(offsets.stable, self._kafka(), *each) for each in leaders.items()]
        _, *found = self._at_once([self._check_topics, *looks])
        ends = self.ends = dict(zip(topics, found, strict=True))
        self._leaders = {topic: self._kafka().leaders(topic) for topic in topics}
        self._tables.pin_after_ends(self.newest, self._kafka)
        # rule: truncated-input/end
        if self.newest.is_beyond(ends):
            preflight.check_nothing_truncated(self._kafka(), self.newest)
        basis = self._plan_basis()
        if first := plan_apply(basis):
            return first
        plans = plan_records(basis, ends, self._tables.full())
        # the table has moved, or time is up
        waiting = self._tables.partitions_to_resume(self.newest, self._clock.now_ms())
        plans += plan_held(basis, waiting - {plan.partition for plan in plans})
        if idle_after is None:
            return plans
        busy = {plan.partition for plan in plans}
        # rule: idle-at-high-watermark/read
        begun = {topic: offsets.latest(self._kafka(), topic) for topic in topics}
        return plans + plan_idle(basis, begun, self._clock.now_ms(), idle_after, busy)

    def awaits_records_only(self) -> bool:
        """Return whether, as far as this driver knows, nothing but new records of the input can make a batch due."""
        return (
            self._config.idle_after is None
            and self.ends == self.newest.read_to
            and not self.publication.unclear
            and not self._compacting.is_under_way
            and not self._driver.recovering.is_under_way
            and self._tables.nothing_waits(self.newest)
        )

    def is_behind(self) -> bool:
        """Return whether records that were there at the last round are still to be read."""
        return any(self.newest.unread(self.ends).values())

    def next_positions(self) -> dict[str, dict[int, Position]]:
        """Return where the next records of the input topics are awaited, with the leaders of the last round."""
        return {
            topic: {p: Position(self._leaders[topic][p], offset) for p, offset in own.items()}
            for topic, own in self.newest.read_to.items()
        }

    def _plan_basis(self) -> PlanBasis:
        return PlanBasis(self.newest, self._lineage, self.publication.producers)

    def _run_if_all_ready(self, plans: Sequence[PartitionPlan]) -> bool:
        """Run the plans as one batch if all of their local states are ready; return whether they are."""
        ready = self._driver.recovering.ready(plans, self._prepared)
        if ready:
            self.batch(ready)
        return len(ready) == len(plans)

    def _prepared(self, plans: Sequence[PartitionPlan]) -> tuple[KafkaAttempt, Sequence[PartitionPlan]]:
        """Return an attempt for recovery alone, and the plans, pinned to the tables.

        Local states bear the commit that they are recovered to, never this attempt.
        """
        return self._attempt("recovery", self.newest.clock), self._tables.pinned(plans)

    def _check_topics(self) -> None:
        """Raise if a topic changed since the claim. This makes one request to a broker, and so fetches leaders."""
        topics = preflight.find_topics(self._kafka(), self._config, self.newest.topics)
        # rule: topic-ids-checked/before
        preflight.check_topics(self.newest, self._config, topics)

    def _at_once(self, parts: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Return the results of the parts in order: the first is done in this thread, the others beside it."""
        return self._driver.environment.map_waiting(lambda part: part(), parts)

    def _check_found(self, results: Sequence[PartitionResult]) -> None:
        """Raise if what was read is not of the topics of the claim."""
        for result in results:
            if result.topics is not None:
                found = preflight.topics_in(result.topics, self._config, self.newest.topics)
                preflight.check_topics(self.newest, self._config, found)

    # ---- one batch

    def _commit(self, plans: Sequence[PartitionPlan]) -> tuple[list[PartitionResult], list[Opened]]:
        """Run the plans and commit their results to the log; return them, and the transactions that have their marks.

        The marks are added while the log is written. A failed attempt is cleaned up: its files are deleted and its
        transactions aborted. If Kafka does not answer, the next round aborts them.
        """
        # rule: new-attempt-id
        attempt = self._attempt(uuid4().hex, self._clock.now_ms())
        started = self._clock.monotonic()
        with self._cleaned_up(attempt, plans):
            readers, plans = self._readers.with_holds(self.newest, self._tables.pinned(plans), attempt.clock)
            results = self._results(attempt, plans)
        gates = {p.partition: {name: table.open_until for name, table in p.tables.items()} for p in plans}
        alignment = Alignment(self._tables.inputs, readers, gates)
        ran = self._clock.monotonic()
        offsets_reached = _offsets_reached(self._config.input, results)
        parts: list[Callable[[], Any]] = [partial(self._commit_results, attempt, plans, results, alignment)]
        parts += [
            partial(self.publication.add_marks, each, offsets_reached, attempt.batch) for each in _opened(results)
        ]
        _, *marked = self._at_once(parts)
        self._tables.note_used(plans, results, attempt.clock)
        self._readers.log_dropped_versions(plans, results, attempt.batch)
        self._seconds = {"job": ran - started, **_slowest(results), "commit": self._clock.monotonic() - ran}
        self._bytes_per_partition = pace.next_piece(
            self._bytes_per_partition, ran - started, pace.left_behind(plans, results)
        )
        return results, [each for each in marked if isinstance(each, Opened)]

    def _commit_results(
        self,
        attempt: KafkaAttempt,
        plans: Sequence[PartitionPlan],
        results: Sequence[PartitionResult],
        alignment: Alignment,
    ) -> None:
        """Commit the results to the log, if they are of the topics that the operator has claimed."""
        with self._cleaned_up(attempt, plans):
            # rule: topic-ids-checked/after
            self._check_found(results)
            # rule: one-clock
            meta = after_batch(
                self.newest,
                results,
                batch=attempt.batch,
                attempt=attempt.attempt,
                clock=attempt.clock,
                alignment=alignment,
            )
        self._report_recoveries(meta, results)
        # rule: kill-points
        reach("before_commit")
        # rule: commit-then-publish
        self._to_log(meta, [file for result in results for file in result.files])
        # rule: kill-points
        reach("after_commit")

    @contextmanager
    def _cleaned_up(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> Iterator[None]:
        """Clean up the attempt if the block fails."""
        try:
            yield
        except Exception:
            self._clean_up(attempt, plans)
            raise

    def _results(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        """Run the plans and return each partition's result. An error about lost input names all affected partitions."""
        try:
            answers = results_of(self._driver.jobs.run(attempt, plans))
        except OffsetsGone:
            starts = {topic: offsets.earliest(self._kafka(), topic) for topic in self._config.inputs}
            preflight.check_nothing_lost(self.newest, starts)
            raise
        except InputTruncated:
            preflight.check_nothing_truncated(self._kafka(), self.newest)
            raise
        return [self._driver.recovering.with_recovery(answer) for answer in answers]

    def _report_recoveries(self, meta: BatchMeta, results: Sequence[PartitionResult]) -> None:
        recovered = {p: change.recovered for p, change in meta.changed.items() if change.recovered is not None}
        for partition, recovery in recovered.items():
            fields = log_fields(self.name, partition=partition, batch=meta.batch)
            lines.info("%s, partition %d: local state: %s", self.name, partition, recovery, extra=fields)
            self._driver.status.write_recovered(partition, recovery)
        for result in results:
            for table, replica in result.replicas.items():
                if replica.method is RecoveryMethod.REBUILD:
                    fields = log_fields(self.name, partition=result.partition, batch=meta.batch)
                    line = "%s, partition %d: replica of the table %s: %s"
                    lines.info(line, self.name, result.partition, table, replica.description, extra=fields)

    def _to_log(self, meta: BatchMeta, files: Sequence[DataFile]) -> None:
        try:
            self._start_over_if_unclear(lambda: self.log.commit(meta, files))
        except Exception:
            # rule: abort-before-waiting
            self._abort_opened([partition for partition, change in meta.changed.items() if change.opened])
            raise
        self.newest = meta
        self._driver.recorder.note(meta)

    def _abort_opened(self, opened: Sequence[int]) -> None:
        """Abort the transactions, so that none stays open while the lake is away.

        If the batch was committed nevertheless, the next claim publishes it.
        """
        with suppress(EngineError, Fenced):
            self.publication.abort(opened)

    def _publish(self, results: Sequence[PartitionResult], marked: Sequence[Opened]) -> None:
        started = self._clock.monotonic()
        # rule: unmarked-aborted
        self.publication.mark_unclear(partition for opened in _opened(results) for partition in opened.partitions)
        if marked:
            # rule: kill-points
            reach("before_ends")
        self.publication.end(marked, self.newest)
        self._seconds["publish"] = self._clock.monotonic() - started

    def _clean_up(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> None:
        partitions = [plan.partition for plan in plans]
        # rule: failed-attempt-files
        delete_attempt(self.log.lake, attempt.log_format, attempt.batch, attempt.attempt, partitions)
        # rule: recover-before-attempt/failed
        self._driver.recovering.mark_unready(plan.partition for plan in plans)
        # rule: init-after-failure
        self.publication.mark_unclear(plan.partition for plan in plans)
        with suppress(EngineError):  # the next round does it
            self.publication.clear_up(self.newest)

    def _attempt(self, attempt: str, now: int) -> KafkaAttempt:
        """Return an attempt at the next batch, at this time of the wall clock."""
        return KafkaAttempt(
            operator=self.name,
            config=self._config,
            topic=self._config.input,
            further=self._config.inputs[1:],
            route=self.publication.route,
            kafka=self._application.kafka,
            log=self.log.lake,
            version=self.log.version,
            log_format=self.log.format,
            table_id=self.log.table_id,
            state=self._application.state / self._application.application,
            epoch=self.newest.epoch,
            batch=self.newest.batch + 1,
            attempt=attempt,
            clock=now,
            environment=self._driver.environment,
            max_batch_bytes=self._bytes_per_partition,
            deadline_s=ATTEMPT_DEADLINE_S,
        )

    # ---- between batches

    def _check_no_successor(self) -> None:
        """Raise StartOver if the log has an entry above this driver's own; without commits it would not notice."""
        if self.log.has_successor():
            raise StartOver("the log has an entry above this driver's own", value=self.log.version + 1)

    def _renew_lease_and_report_wait(self) -> None:
        """Renew the leases on the tables, and write to the status which partitions wait for which table."""
        self._tables.renew_leases(self.newest, self._clock.now_ms())
        waiting = self._tables.waiting()
        self._waiting_since = (self._waiting_since or self._clock.monotonic()) if waiting else None
        if self._waiting_since is None or self._clock.monotonic() - self._waiting_since >= REPORT_WAIT_AFTER_S:
            self._driver.status.write_waits(waiting)

    def _compact_in_background(self) -> None:
        """Start a background compaction if one is due, and commit the one that has finished."""
        self._compacting.begin_if_due(self.log, self.newest, self.publication.published)
        finished = self._compacting.take_finished(self.log, self.newest)
        if finished is not None:
            meta, commit = finished
            self._start_over_if_unclear(commit)
            self._compacted(meta)

    def _compact_now(self) -> BatchMeta:
        return self._compacting.compact_now(self.log, self.newest, self.publication.published(self.newest))

    def _compacted(self, meta: BatchMeta) -> None:
        reach("after_compaction_commit")
        self.newest = meta
        self._driver.recorder.note(meta)
        self._lineage = earlier_batches.above_snapshots(self._lineage, meta)

    def _start_over_if_unclear(self, commit: Callable[[], Answer]) -> Answer:
        """Make the commit. Raise StartOver if its outcome is unclear, because only a new claim can settle that."""
        try:
            return commit()
        except EngineError as error:
            remedy = error.remedy or "it is settled by the next claim"
            raise StartOver(error.problem, value=error.value, remedy=remedy) from error


def _opened(results: Sequence[PartitionResult]) -> list[Opened]:
    """Return the open transactions of the results, each once."""
    opened = {each.transaction.partitions[0]: each.transaction for each in results if each.transaction is not None}
    return list(opened.values())


def _offsets_reached(topic: str, results: Sequence[PartitionResult]) -> Ends:
    """Return the next offsets of the partitions that took part; `topic` is the first input topic."""
    further = {name for result in results for name in result.further}
    return {topic: {result.partition: result.next_offset for result in results}} | {
        name: {result.partition: result.further[name].next_offset for result in results} for name in further
    }


def _slowest(results: Sequence[PartitionResult]) -> dict[str, float]:
    """Return the seconds that the slowest partition spent in each step."""
    return max((result.seconds for result in results), key=lambda seconds: sum(seconds.values()))
