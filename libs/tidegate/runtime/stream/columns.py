"""Partitions and sorts the rows of a Spark batch for the tasks.

A row's partition is `pmod(hash(key), partitions)` with Spark's `hash` (Murmur3) of the key's bytes. Within a partition
rows are sorted by `order_by`; ties are broken by timestamp, key and value, so that the order does not depend on Spark's
shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, TimestampType

from tidegate.contracts.errors import ConfigurationError, Problem

ColumnOrName: TypeAlias = Column | str


@dataclass(frozen=True, kw_only=True)
class StreamColumns:
    """The DataFrame columns that hold a record's key, value, timestamp and order, as names or expressions."""

    key: ColumnOrName
    value: ColumnOrName
    timestamp: ColumnOrName
    order_by: ColumnOrName | Sequence[ColumnOrName]

    def check(self, rows: DataFrame) -> None:
        """Raise ConfigurationError, with every problem, if a column's type is not supported."""
        found = self._selected(rows).schema
        problems = [
            Problem(where=name, value=found[name].dataType.simpleString(), cause=cause, remedy=remedy)
            for name, types, cause, remedy in _TAKEN
            if not isinstance(found[name].dataType, types)
        ]
        if problems:
            raise ConfigurationError(problems)

    def prepared(self, rows: DataFrame, partitions: int, tasks: int) -> DataFrame:
        """Return columns partition, key, value (bytes) and timestamp (ms), each partition sorted and in one task."""
        records = self._selected(rows)
        orders = [name for name in records.columns if name.startswith("order_")]
        key, value = F.col("key").cast("binary"), F.col("value").cast("binary")
        timestamp = _milliseconds(records.schema["timestamp"].dataType)
        return (
            records.select(key.alias("key"), value.alias("value"), timestamp.alias("timestamp"), *orders)
            .withColumn("partition", F.pmod(F.hash("key"), F.lit(partitions)))
            .repartitionById(tasks, F.col("partition"))
            .sortWithinPartitions("partition", *orders, "timestamp", "key", "value")
            .select("partition", "key", "value", "timestamp")
        )

    def _selected(self, rows: DataFrame) -> DataFrame:
        orders = [self.order_by] if isinstance(self.order_by, Column | str) else list(self.order_by)
        parts = {"key": self.key, "value": self.value, "timestamp": self.timestamp}
        parts |= {f"order_{place}": order for place, order in enumerate(orders)}
        return rows.select(*(_column(part).alias(name) for name, part in parts.items()))


_BYTES = (StringType, BinaryType)
_AS_TEXT = "make it text: to_json(struct(...)), or cast('string')"
_TAKEN = (
    ("key", _BYTES, "neither a string nor binary", _AS_TEXT),
    ("value", _BYTES, "neither a string nor binary", _AS_TEXT),
    ("timestamp", (TimestampType, LongType, IntegerType), "neither a timestamp nor a number of ms", "cast it to one"),
)


def _column(part: ColumnOrName) -> Column:
    return F.col(part) if isinstance(part, str) else part


def _milliseconds(kind: DataType) -> Column:
    timestamp = F.col("timestamp")
    return F.unix_millis(timestamp) if isinstance(kind, TimestampType) else timestamp.cast("long")
