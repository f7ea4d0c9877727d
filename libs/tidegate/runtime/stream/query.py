"""Starts and stops the streaming query of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as DriversDataFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.stream.columns import Columns
from tidegate.runtime.stream.config import StreamConfig
from tidegate.runtime.stream.driver import StreamDriver


class BatchGate:
    """Passes Spark's batches to `work` until it is closed."""

    def __init__(self, work: Callable[[DataFrame, int], None]) -> None:
        self._work, self._lock, self._open = work, Lock(), True

    def batch(self, rows: DataFrame, spark_batch: int) -> None:
        """Do the work for the batch. Raise EngineError if the gate is closed, so that Spark does not record it."""
        with self._lock:
            if not self._open:
                raise EngineError("the query is being stopped", value=f"Spark batch {spark_batch}")
            self._work(rows, spark_batch)

    def close(self) -> None:
        """Let no further batch begin, and wait for the running one.

        A batch that arrives while Spark stops the query is refused at once. If it waited for the end of the stop, both
        would wait for ever, because Spark's stop waits for the batch.
        """
        self._open = False
        with self._lock:
            pass


class OperatorQuery(StreamingQuery):  # type: ignore[misc]
    """Spark's query, stopped only between batches: a stop during a batch makes Spark overflow its stack."""

    def __init__(self, query: StreamingQuery, gate: BatchGate) -> None:
        super().__init__(query._jsq)
        self._gate = gate

    def stop(self) -> None:
        """Wait until the running batch is committed, then stop the query."""
        self._gate.close()
        super().stop()


def start_query(
    rows: DataFrame, config: StreamConfig, columns: Columns, trigger: Mapping[str, Any] | None
) -> OperatorQuery:
    """Claim the operator and start its query.

    Raises UserError or StateError, before anything is changed, if it cannot run.
    """
    check_stream(rows)
    writer = _triggered(rows.writeStream.option("checkpointLocation", str(config.checkpoint)), trigger)
    driver = StreamDriver(rows.sparkSession, config, columns)
    driver.claim()
    gate = BatchGate(driver.batch)
    return OperatorQuery(writer.foreachBatch(gate.batch).start(), gate)


def _triggered(writer: DataStreamWriter, trigger: Mapping[str, Any] | None) -> DataStreamWriter:
    if not trigger:
        return writer
    try:
        return writer.trigger(**trigger)
    except (PySparkException, Py4JJavaError, TypeError) as error:
        remedy = 'write one of Spark\'s, such as {"availableNow": True} or {"processingTime": "10 seconds"}'
        raise UserError("not a trigger", value=dict(trigger), remedy=remedy) from error


def check_stream(rows: DataFrame) -> None:
    """Raise UserError if the rows are no stream of this driver, or its Spark may run a partition twice at once."""
    if not isinstance(rows, DriversDataFrame):
        remedy = "run the program in the driver, as with spark-submit, in a session without Connect"
        raise UserError("the DataFrame is of a session of Spark Connect", remedy=remedy)
    if not rows.isStreaming:
        raise UserError("the DataFrame is not a stream", remedy="read it with spark.readStream")
    if rows.sparkSession.sparkContext.getConf().get("spark.speculation", "false") == "true":
        remedy = "start Spark without spark.speculation"
        raise UserError("speculation would run a partition twice at once", value="spark.speculation", remedy=remedy)
