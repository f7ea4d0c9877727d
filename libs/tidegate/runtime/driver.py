"""The driver of one operator: claim, settle, then one micro-batch after the other. May import: contracts, operators'
registry, state, runtime.

One micro-batch = one Spark job + one Delta commit + one Kafka transaction per partition with output. The rules are
those of `docs/protocol.md`; the decisions are pure functions in `state.decisions`, `runtime.planning` and
`runtime.ledger`; what is left here is their order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

from tidegate.contracts.errors import BufferFull, EngineError, Fenced, OutputTooLarge, StateError, Superseded, UserError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.naming import group_id, log_path
from tidegate.contracts.schema import FORMAT, BatchMeta, log_schema
from tidegate.operators.registry import operator_for
from tidegate.runtime import clock
from tidegate.runtime.application import Application, config_hash
from tidegate.runtime.batch import Attempt, PartitionFailure, PartitionPlan, PartitionResult
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.ledger import after_batch, after_claim, after_compaction
from tidegate.runtime.planning import plan_flush, plan_idle, plan_records, spread
from tidegate.runtime.publication import Publication
from tidegate.runtime.requests import Requests
from tidegate.runtime.task import make_durable, run_group, warm_up
from tidegate.state.compaction import compact
from tidegate.state.data_files import delete_attempt
from tidegate.state.decisions import compaction_due
from tidegate.state.operator_log import OperatorLog

log_lines = logging.getLogger("tidegate")

ATTEMPT_DEADLINE_S = 60.0
"""An attempt's Kafka work ends within this; the transaction timeout is three times as long."""
MAX_BATCH_BYTES = 64 * 2**20
"""Raw record batches that one partition takes into one micro-batch: bounds memory and the length of a batch."""
IDLE_POLL_S = 0.01
"""Pause when there was nothing to do and `trigger` is shorter."""
RETRIES = 8
"""Attempts of a batch before its error ends the driver; the pauses between them add up to about a minute."""

Listener = Callable[[BatchMeta, dict[str, float]], None]


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What a driver needs from its service."""

    spark: Any
    application: Application
    name: str
    listener: Listener = lambda meta, seconds: None


class OperatorDriver:
    """One operator of an application, in this process."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._application, self.name = wiring.application, wiring.name
        self._config = wiring.application.operators[wiring.name]
        self._operator = operator_for(self._config)
        self._context = wiring.spark.sparkContext
        self._state = self._application.state / self._application.application / self.name
        self.requests = Requests(self._state)
        self._kafka: KafkaClient | None = None
        self._log: OperatorLog
        self._newest: BatchMeta
        self._publication: Publication | None = None
        self._lineage: dict[int, list[tuple[int, str]]] = {}
        self._batches_since_compaction = 0

    # ---- start -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The operator is claimed, older drivers are fenced, everything committed is published."""
        self._kafka = client(self._application.kafka)
        self._warm_up()
        topics = self._check_topics()
        path = log_path(self._application.lake, self.name)
        self._log = OperatorLog.open(path, self.name, log_schema(self._operator.columns), create=True)
        before = self._log.newest() or self._first_meta()
        self._check_same_input(before, topics)
        self._claim(before, topics)
        self._lineage = self._log.lineage(self._newest.snapshot)
        if self._config.output is not None:
            self._publication = self._publish_to(self._config.output)

    def _warm_up(self) -> None:
        cores = range(self._context.defaultParallelism)
        config = self._config
        self._context.parallelize(cores, len(cores)).map(lambda worker: warm_up(config, worker)).collect()

    def _check_topics(self) -> dict[str, str]:
        kafka = self._client()
        source = kafka.topic(self._config.input)
        topics = {source.name: source.id}
        if self._config.output is not None:
            output = kafka.topic(self._config.output)
            topics[output.name] = output.id
            if len(output.leaders) < len(source.leaders):
                raise UserError(
                    "the output topic has fewer partitions than the input",
                    value=f"{output.name}: {len(output.leaders)}, {source.name}: {len(source.leaders)}",
                    remedy=f"give {output.name} at least {len(source.leaders)} partitions",
                )
        return topics

    def _check_same_input(self, before: BatchMeta, topics: dict[str, str]) -> None:
        known = before.topics.get(self._config.input)
        if before.offsets and self._config.input not in before.offsets:
            raise StateError(
                f"the log of {self.name} was written from another input topic",
                value=f"{', '.join(before.offsets)}; now {self._config.input}",
                remedy="give the operator another name, or the input it had",
            )
        if known is not None and known != topics[self._config.input]:
            raise StateError(
                f"topic {self._config.input} was deleted and created again since the last batch",
                value=f"topic id {topics[self._config.input]}, was {known}",
                remedy="give the operator another name: its state belongs to the topic that is gone",
            )

    def _first_meta(self) -> BatchMeta:
        starts = offsets.earliest(self._client(), self._config.input)
        return BatchMeta(
            format=FORMAT,
            operator=self.name,
            table_id=self._log.table_id,
            epoch=0,
            batch=-1,
            attempt="",
            action="claim",
            clock=clock.now_ms(),
            config="",
            offsets={self._config.input: starts},
        )

    def _claim(self, before: BatchMeta, topics: dict[str, str]) -> None:
        claim = after_claim(
            before,
            attempt=uuid4().hex,
            clock=clock.now_ms(),
            config=config_hash(self._config),
            topics=topics,
        )
        if self._config.output is not None and self._config.output not in before.topics:
            claim = replace(claim, published_from=claim.batch)
        self._commit(claim, [])
        reach("after_claim")

    def _publish_to(self, output: str) -> Publication:
        publication = Publication(
            self._client(),
            self._log,
            application=self._application.application,
            operator=self.name,
            input=self._config.input,
            output=output,
            deadline_s=ATTEMPT_DEADLINE_S,
        )
        publication.start(sorted(self._newest.offsets[self._config.input]), self._newest)
        return publication

    # ---- running -----------------------------------------------------------------------------------------------

    def run(self, stop: Event, *, until_caught_up: bool = False) -> None:
        """Batches have been run until `stop` was set or, if asked, the input as of now is processed and published.

        Raises BufferFull, Fenced, StateError, EngineError; a drain leaves the local state durable.
        """
        with self.requests.driving():
            targets = offsets.stable(self._client(), self._config.input) if until_caught_up else None
            while not stop.is_set():
                moved = self.round()
                if targets is not None and self._reached(targets):
                    break
                pause_s = self._application.trigger / 1_000
                stop.wait(pause_s if moved else max(pause_s, IDLE_POLL_S))
            self.drain()

    def round(self) -> bool:
        """One micro-batch was run if there was anything to do; false if not."""
        ends = offsets.stable(self._client(), self._config.input)
        plans = plan_records(self._newest, self._config.input, ends, self._producers(), self._lineage)
        if not plans and self._config.idle_after is not None:
            plans = plan_idle(
                self._newest,
                self._config.input,
                clock.now_ms(),
                self._config.idle_after,
                self._producers(),
                self._lineage,
            )
        if plans:
            self.batch(plans)
        self._answer_requests()
        self._compact_when_due()
        return bool(plans)

    def batch(self, plans: Sequence[PartitionPlan]) -> None:
        """One micro-batch is committed and published. Raises BufferFull after it, when a bound stopped a partition."""
        results = self._until_committed(plans)
        self._publish(results)
        for result in results:
            self._lineage.setdefault(result.partition, []).append(self._newest.last[result.partition])
        self._batches_since_compaction += 1
        for result in results:
            if result.stopped_at is not None:
                raise BufferFull(
                    f"{self.name} stopped before offset {result.stopped_at} of partition {result.partition}",
                    value=result.stop_reason,
                    remedy="raise the bound, or take when_full: emit or spill; it goes on at that offset",
                )

    def flush(self) -> None:
        """Nothing is held any more; all of it is committed and published with cause `flush`."""
        plans = plan_flush(self._newest, self._config.input, self._producers(), self._lineage)
        if plans:
            self.batch(plans)

    def compact(self) -> None:
        """Each partition's state is a snapshot, small files are merged; nothing that follows is changed by it."""
        partitions = sorted(self._newest.offsets[self._config.input])
        meta = after_compaction(self._newest, partitions, attempt=uuid4().hex, clock=clock.now_ms())
        compact(
            self._log,
            meta,
            slot=self._operator.slot,
            keep_output_ms=None if self._application.keep_output == "forever" else self._application.keep_output,
            rewind_window_ms=self._config.rewind_window,
            before_commit=lambda: reach("before_compaction_commit"),
        )
        reach("after_compaction_commit")
        self._newest = meta
        self._lineage = {}
        self._batches_since_compaction = 0

    def drain(self) -> None:
        """The local state of every partition is on disk for good: a reboot need not rebuild it."""
        attempt = self._attempt_of(self._newest.batch, "drain", self._newest.clock)
        partitions = sorted(self._newest.last)
        if partitions:
            job = self._context.parallelize(partitions, 1)
            job.map(lambda partition: make_durable(attempt, partition)).collect()

    # ---- one batch ---------------------------------------------------------------------------------------------

    def _until_committed(self, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        for failures in range(RETRIES):
            try:
                return self._try(plans)
            except OutputTooLarge:
                self._abort(plans)
                raise
            except EngineError as error:
                self._abort(plans)
                if failures == RETRIES - 1:
                    raise
                log_lines.warning("%s: batch %d failed, trying again: %s", self.name, self._newest.batch + 1, error)
                time.sleep(min(0.25 * 2**failures, 20))
                plans = [replace(plan, producer=self._producers().get(plan.partition)) for plan in plans]
        raise AssertionError("the last failure is raised above")

    def _try(self, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        batch, attempt, now = self._newest.batch + 1, uuid4().hex, clock.now_ms()
        started = time.monotonic()
        self._attempt_id = attempt
        results = self._run_job(self._attempt_of(batch, attempt, now), plans)
        ran = time.monotonic()
        meta = after_batch(self._newest, results, topic=self._config.input, batch=batch, attempt=attempt, clock=now)
        reach("before_commit")
        self._commit(meta, [file for result in results for file in result.files])
        reach("after_commit")
        self._seconds = {"job": ran - started, "commit": time.monotonic() - ran}
        return results

    def _run_job(self, attempt: Attempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        groups = spread(plans, self._context.defaultParallelism)
        job = self._context.parallelize(groups, len(groups))
        try:
            answers = job.mapPartitions(
                lambda groups: (r for group in groups for r in run_group(attempt, group))
            ).collect()
        except Exception as error:
            raise EngineError("the Spark job failed", value=error, remedy="see Spark's lines above") from error
        failures = [answer for answer in answers if isinstance(answer, PartitionFailure)]
        if failures:
            raise _worst(failures)
        return sorted(answers, key=lambda result: result.partition)

    def _attempt_of(self, batch: int, attempt: str, now: int) -> Attempt:
        return Attempt(
            operator=self.name,
            config=self._config,
            kafka=self._application.kafka,
            group=group_id(self._application.application, self.name),
            log=Path(log_path(self._application.lake, self.name)),
            version=self._log.version,
            table_id=self._log.table_id,
            state=self._state,
            epoch=self._newest.epoch,
            batch=batch,
            attempt=attempt,
            clock=now,
            max_batch_bytes=MAX_BATCH_BYTES,
            output_limit=self._publication.output_limit if self._publication else 0,
            deadline_s=ATTEMPT_DEADLINE_S,
        )

    def _commit(self, meta: BatchMeta, files: Sequence[Any]) -> None:
        self._log.commit(meta, files)
        self._newest = meta

    def _publish(self, results: Sequence[PartitionResult]) -> None:
        started = time.monotonic()
        if self._publication is not None:
            opened = {r.partition: r.producer for r in results if r.producer is not None and r.producer.opened}
            self._publication.end(opened, self._newest)
        self._seconds["publish"] = time.monotonic() - started
        self._wiring.listener(self._newest, self._seconds)

    def _abort(self, plans: Sequence[PartitionPlan]) -> None:
        if self._publication is not None:
            self._publication.renew([plan.partition for plan in plans])
        delete_attempt(log_path(self._application.lake, self.name), self._attempt_id)

    # ---- beside batches ----------------------------------------------------------------------------------------

    def _answer_requests(self) -> None:
        for request in self.requests.pending():
            {"compact": self.compact, "flush": self.flush}[request]()
            self.requests.done(request)

    def _compact_when_due(self) -> None:
        if compaction_due(self._batches_since_compaction):
            self.compact()

    def _reached(self, targets: dict[int, int]) -> bool:
        reached = self._newest.offsets[self._config.input]
        return all(reached[partition] >= target for partition, target in targets.items())

    def _producers(self) -> dict[int, Any]:
        return self._publication.producers if self._publication else {}

    def _client(self) -> KafkaClient:
        self._kafka = client(self._application.kafka)
        return self._kafka


def _worst(failures: Sequence[PartitionFailure]) -> Exception:
    """What ends the driver comes before what it can try again."""
    order = (Fenced, Superseded, StateError, UserError, OutputTooLarge, EngineError)
    worst = min(failures, key=lambda f: next((i for i, kind in enumerate(order) if isinstance(f.error, kind)), 0))
    log_lines.debug("partition %d failed:\n%s", worst.partition, worst.trace)
    worst.error.add_note(worst.trace)
    return worst.error
