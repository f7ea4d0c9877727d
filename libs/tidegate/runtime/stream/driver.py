"""The driver of an operator on a streaming DataFrame: a claim, then one commit for each Spark batch.

Spark decides what is read next and runs a batch again after a crash; the log knows whether that batch is committed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import BufferFull, EngineError, Fenced, StateError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.log_schema import log_schema
from tidegate.operators.registry import operator_for
from tidegate.runtime.batch_loop.background_compaction import Compacting, due
from tidegate.runtime.batch_loop.earlier_runs import refuse_second_log, traces_of_states
from tidegate.runtime.batch_loop.next_metadata import after_batch, after_claim
from tidegate.runtime.batch_loop.planning import PlanBasis, plan_stream
from tidegate.runtime.configuration.application import config_hash, settings_of
from tidegate.runtime.spark.jobs import SparkJobs
from tidegate.runtime.stream.checkpoint import query_id
from tidegate.runtime.stream.columns import Columns
from tidegate.runtime.stream.config import StreamConfig
from tidegate.runtime.stream.decisions import (
    STREAM,
    BatchDecision,
    after_query_batch,
    check_same_input,
    check_same_query,
    decide_batch,
    first_meta,
)
from tidegate.runtime.stream.task import ANSWER, task_function, unpacked
from tidegate.runtime.task.messages import Attempt, PartitionFailure, PartitionResult
from tidegate.runtime.task.results import results_of
from tidegate.state import earlier_batches
from tidegate.state.delta_log.attempt_files import delete_attempt
from tidegate.state.delta_log.log_entries import check_log_exists, newest_version
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.lake.opening import open_lake
from tidegate.state.protocol_decisions import Commit

lines = logging.getLogger("tidegate")

PAUSES_S = (0.25, 1.0, 4.0)
"""Pauses between attempts of a batch. If the attempt after the last pause fails, the query ends with its error."""


class StreamDriver:
    """The driver of one operator on a streaming DataFrame, in this process."""

    def __init__(self, spark: Any, config: StreamConfig, columns: Columns) -> None:
        self._context = spark.sparkContext
        self._config, self._columns = config, columns
        self._operator = operator_for(config.rules)
        self._compacting = Compacting(
            jobs=SparkJobs(spark),
            slot=self._operator.slot,
            keep_output_ms=None if config.keep_output == "forever" else config.keep_output,
            rewind_window_ms=config.rules.rewind_window,
        )
        self._claimed = self._shares_lake = False
        self._log: OperatorLog
        self._lineage: dict[int, list[Commit]]
        self.newest: BatchMeta

    def claim(self) -> None:
        """Claim the operator for this driver and fence older ones.

        Raises StateError if log and checkpoint do not belong together, EngineError if executors do not share the lake.
        """
        config = self._config
        self._log = self._open_log()
        # rule: no-second-log/claimed
        self._claimed = True
        before = self._log.newest() or first_meta(
            config.name, self._log.table_id, SYSTEM_CLOCK.now_ms(), config.partitions
        )
        check_same_input(before, config.partitions)
        check_same_query(before, query_id(config.checkpoint), config.checkpoint)
        claim = after_claim(
            before,
            attempt=uuid4().hex,
            clock=SYSTEM_CLOCK.now_ms(),
            config=config_hash(config.rules),
            topics={},
            settings=settings_of(config.rules),
        )
        self._log.commit(claim, [])
        self.newest, self._lineage = claim, earlier_batches.lineage(self._log, claim)
        reach("after_claim")
        if not self._shares_lake:
            self._compacting.jobs.check_lake(self._log.lake)
            self._shares_lake = True

    def batch(self, rows: DataFrame, spark_batch: int) -> None:
        """Commit the Spark batch to the log exactly once, even if an earlier driver tried. `foreachBatch` calls this.

        Retries a few times, each time with a new claim. Raises BufferFull when a buffer bound stopped a partition: the
        records before that are committed, and the rest of the batch follows when Spark runs it again.
        """
        query = self._context.getLocalProperty("sql.streaming.queryId")
        for pause_s in (*PAUSES_S, None):
            try:
                if decide_batch(self.newest, query, spark_batch) is BatchDecision.RUN:
                    self._run(rows, query, spark_batch)
                return
            except EngineError as error:
                if pause_s is None:
                    raise
                lines.warning("%s: trying again in %.1f s: %s", self._config.name, pause_s, error)
            SYSTEM_CLOCK.sleep(pause_s)
            self._claim_again()

    def _run(self, rows: DataFrame, query: str, spark_batch: int) -> None:
        attempt = self._attempt()
        try:
            results = self._results(attempt, rows)
        except Exception:
            partitions = self.newest.partitions
            delete_attempt(self._log.lake, attempt.log_format, attempt.batch, attempt.attempt, partitions)
            raise
        self._commit(attempt, results, query, spark_batch)
        self._stop_if_full(results)
        if due(self._log, self.newest):
            self._compact()

    def _results(self, attempt: Attempt, rows: DataFrame) -> list[PartitionResult]:
        """Run the Spark job; return a result for every partition with rows.

        Raises an error of a partition if there is one; of several, one that ends the driver before one to be retried.
        """
        begins = {partition: known.query_offset for partition, known in self.newest.partitions.items()}
        work = task_function(attempt, plan_stream(PlanBasis(self.newest, self._lineage, {})), begins)
        partitions = self._config.partitions
        prepared = self._columns.prepared(rows, partitions, min(partitions, self._context.defaultParallelism))
        try:
            found = prepared.mapInArrow(work, ANSWER).collect()
        except Exception as error:
            raise EngineError("the Spark job failed", value=error, remedy="see Spark's log above") from error
        answers = [unpacked(row.answer) for row in found]
        _check_one_task_each(answers)
        return results_of(answers)

    def _commit(self, attempt: Attempt, results: Sequence[PartitionResult], query: str, spark_batch: int) -> None:
        meta = after_batch(self.newest, results, batch=attempt.batch, attempt=attempt.attempt, clock=attempt.clock)
        meta = replace(meta, query_id=query)
        if all(result.stopped_at is None for result in results):
            meta = after_query_batch(meta, spark_batch)
        reach("before_commit")
        self._log.commit(meta, [file for result in results for file in result.files])
        reach("after_commit")
        self.newest = meta
        earlier_batches.extend_lineage(self._lineage, self.newest)

    def _stop_if_full(self, results: Sequence[PartitionResult]) -> None:
        for result in results:
            if result.stopped_at is not None:
                place = f"record {result.stopped_at} of partition {result.partition}"
                raise BufferFull.before(place, self._config.name, result.stopped_by)

    def _compact(self) -> None:
        """Compact the log: write a snapshot of each partition's state and merge small files.

        Later batches give the same results as without it.
        """
        self.newest, self._lineage = self._compacting.compact_now(self._log, self.newest, None), {}
        reach("after_compaction_commit")

    def _claim_again(self) -> None:
        """Claim the operator again, which determines whether the last commit succeeded.

        Raises Fenced if a newer driver has claimed the operator.
        """
        newest = self._open_log().newest()
        if newest is not None and newest.epoch > self.newest.epoch:
            raise Fenced(
                f"a newer driver has claimed {self._config.name}; this query ends",
                value=f"epoch {newest.epoch}, own {self.newest.epoch}",
                remedy="do nothing if you meant to start the other query; otherwise stop that one",
            )
        self.claim()

    def _open_log(self) -> OperatorLog:
        """Return the log at its newest version; create it if the operator has never run.

        Raises Unavailable if the log is missing although the operator has run before.
        """
        config, schema, log = self._config, log_schema(self._operator.columns), open_lake(self._config.log)
        if self._claimed:
            check_log_exists(log)
        elif newest_version(log) is None:
            # rule: no-second-log
            refuse_second_log(config.name, log.place, self._traces())
        return OperatorLog.open(log, config.name, schema, create=not self._claimed)

    def _traces(self) -> Iterator[str]:
        """Yield what an earlier run of the operator has left outside of its log."""
        # rule: no-second-log
        yield from traces_of_states(self._config.state, self._config.name)
        if (query := query_id(self._config.checkpoint)) is not None:
            yield f"Spark's checkpoint of query {query} in {self._config.checkpoint}"

    def _attempt(self) -> Attempt:
        return Attempt(
            operator=self._config.name,
            config=self._config.rules,
            topic=STREAM,
            log=self._log.lake,
            version=self._log.version,
            log_format=self._log.format,
            table_id=self._log.table_id,
            state=Path(self._config.state),
            epoch=self.newest.epoch,
            batch=self.newest.batch + 1,
            attempt=uuid4().hex,
            clock=SYSTEM_CLOCK.now_ms(),
        )


def _check_one_task_each(answers: Sequence[PartitionResult | PartitionFailure]) -> None:
    """Raise StateError if a partition has several answers: its rows were in several tasks, so not in order."""
    twice = [partition for partition, times in Counter(each.partition for each in answers).items() if times > 1]
    if twice:
        remedy = "report it, with the plan of the DataFrame; nothing of the batch was committed"
        raise StateError("the rows of a partition were spread over tasks", value=f"partitions {twice}", remedy=remedy)
