"""The peer of the join of two DataFrames: the same join, written with Spark's `transformWithStateInPandas`.

The rows of both streams are united and grouped by key. A row of the stream waits until the watermark, which is the
smaller one of both streams and lags by the grace, has passed its time; then it looks up the newest version of the table
at its time. Rows that are below the watermark when they arrive are dropped by Spark.

Tuned for throughput: the state of a key is one packed value, read once and written once per batch; a key has one timer,
that of its oldest waiting row; RocksDB writes changelogs; there are as many shuffle partitions as cores.
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
RESULT = "key string, timestamp bigint, value string"
Row = tuple[int, str | None]


class AsOfJoin(StatefulProcessor):  # type: ignore[misc]
    """Joins the rows of one key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the rows that wait, and the versions by time, both packed."""
        self._handle = handle
        self._state = handle.getValueState("held", "packed binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Add the rows, and emit those that waited and are due."""
        waiting, versions = self._held()
        timer = waiting[0][0] if waiting else None
        for row in sorted(row for piece in rows for row in zip(*_columns(piece), strict=True)):
            _, of_table, at, value = row
            if of_table:
                versions[at] = value
            else:
                waiting.append((at, value))
        waiting.sort()
        yield from self._emitted(key, waiting, versions, timer, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Emit the rows that are due."""
        yield from self._emitted(key, *self._held(), None, timerValues.getCurrentWatermarkInMs())

    def _held(self) -> tuple[list[Row], dict[int, str | None]]:
        packed = self._state.get()
        return pickle.loads(packed[0]) if packed else ([], {})

    def _emitted(
        self, key: Any, waiting: list[Row], versions: dict[int, str | None], timer: int | None, watermark: int
    ) -> Iterator[pd.DataFrame]:
        """Emit the rows that the watermark has passed, and store the others, with the versions that they may need."""
        due = bisect_right(waiting, watermark, key=lambda row: row[0])
        times = sorted(versions)
        if due:
            yield pd.DataFrame(
                {
                    "key": key[0],
                    "timestamp": [at for at, _ in waiting[:due]],
                    "value": [_joined(value, at, times, versions) for at, value in waiting[:due]],
                }
            )
        needed = times[max(bisect_right(times, watermark) - 1, 0) :]
        self._state.update((pickle.dumps((waiting[due:], {at: versions[at] for at in needed})),))
        self._set_timer(timer, waiting[due][0] if due < len(waiting) else None)

    def _set_timer(self, before: int | None, after: int | None) -> None:
        if before == after:
            return
        if before is not None:
            self._handle.deleteTimer(before)
        if after is not None:
            self._handle.registerTimer(after)


def _columns(piece: pd.DataFrame) -> list[list[Any]]:
    return [piece[name].tolist() for name in ("number", "of_table", "at", "value")]


def _joined(value: str | None, at: int, times: list[int], versions: dict[int, str | None]) -> str:
    place = bisect_right(times, at) - 1
    version = versions[times[place]] if place >= 0 else None
    return f'{{"stream":{value},"table":{version or "null"}}}'


def as_of_join(stream: DataFrame, table: DataFrame, grace_ms: int) -> DataFrame:
    """Return the rows of the stream, each with the newest version of the table at its time."""
    sides = (_side(rows, of_table, grace_ms) for of_table, rows in enumerate((stream, table)))
    both = next(sides).unionByName(next(sides))
    return both.groupBy("key").transformWithStateInPandas(
        statefulProcessor=AsOfJoin(), outputStructType=RESULT, outputMode="Append", timeMode="EventTime"
    )


def _side(rows: DataFrame, of_table: int, grace_ms: int) -> DataFrame:
    chosen = rows.select("*", F.lit(of_table).alias("of_table"), F.timestamp_millis("at").alias("event_time"))
    return chosen.withWatermark("event_time", f"{grace_ms} milliseconds")
