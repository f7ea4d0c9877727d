"""The streaming query of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.stream.columns import StreamColumns
from tidegate.runtime.stream.config import StreamConfig
from tidegate.runtime.stream.driver import StreamDriver


class Gate:
    """Lets Spark's batches through to their work until it is closed."""

    def __init__(self, work: Callable[[DataFrame, int], None]) -> None:
        self._work, self._lock, self._open = work, Lock(), True

    def batch(self, rows: DataFrame, spark_batch: int) -> None:
        """The work is done. EngineError when the gate is closed: a batch must never seem to be done that is not."""
        with self._lock:
            if not self._open:
                raise EngineError("the query is being stopped", value=f"Spark batch {spark_batch}")
            self._work(rows, spark_batch)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """The batch in hand is done, and none begins any more."""
        with self._lock:
            self._open = False
            yield


class OperatorQuery(StreamingQuery):
    """Spark's query, stopped between batches: a stop in the middle of one makes Spark overflow its stack."""

    def __init__(self, query: StreamingQuery, gate: Gate) -> None:
        super().__init__(query._jsq)
        self._gate = gate

    def stop(self) -> None:
        """The batch in hand is committed, and the query has ended."""
        with self._gate.closed():
            super().stop()


def start_query(
    rows: DataFrame, config: StreamConfig, columns: StreamColumns, trigger: Mapping[str, Any] | None
) -> OperatorQuery:
    """The operator is claimed and its query runs. UserError, StateError before anything is changed, if it cannot."""
    _check(rows)
    columns.check(rows)
    driver = StreamDriver(rows.sparkSession, config, columns)
    driver.claim()
    gate = Gate(driver.batch)
    writer = rows.writeStream.foreachBatch(gate.batch).option("checkpointLocation", str(config.checkpoint))
    return OperatorQuery((writer.trigger(**trigger) if trigger else writer).start(), gate)


def _check(rows: DataFrame) -> None:
    if not rows.isStreaming:
        raise UserError("the DataFrame is not a stream", remedy="read it with spark.readStream")
    if rows.sparkSession.sparkContext.getConf().get("spark.speculation", "false") == "true":
        remedy = "start Spark without spark.speculation"
        raise UserError("speculation would run a partition twice at once", value="spark.speculation", remedy=remedy)
