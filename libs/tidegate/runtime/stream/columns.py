"""Partitions and sorts the rows of a Spark batch for the tasks.

A row's partition is `pmod(hash(key), partitions)` with Spark's `hash` (Murmur3) of the key's bytes. Within a partition
rows are sorted by `order_by`; ties are broken by timestamp, key and value, so that the order does not depend on Spark's
shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructType, TimestampType

from tidegate.contracts.errors import ConfigurationError, Problem
from tidegate.runtime.spark.queries import unlogged

ColumnOrName: TypeAlias = Column | str


@dataclass(frozen=True, kw_only=True)
class StreamColumns:
    """The DataFrame columns that hold a record's key, value, timestamp and order, as names or expressions.

    A struct as the value becomes a JSON object of its fields.
    """

    key: ColumnOrName
    value: ColumnOrName
    timestamp: ColumnOrName
    order_by: ColumnOrName | Sequence[ColumnOrName]

    def check(self, rows: DataFrame) -> None:
        """Raise ConfigurationError, with every problem, if a column does not exist or its type is not supported."""
        _, problems = self.examined(rows)
        if problems:
            raise ConfigurationError(problems)

    def examined(self, rows: DataFrame) -> tuple[dict[str, DataType], list[Problem]]:
        """Return the types of the columns that exist, by what they hold, and every problem."""
        types: dict[str, DataType] = {}
        problems: list[Problem] = []
        for name, part in self._parts.items():
            try:
                with unlogged("DataFrameQueryContextLogger"):
                    types[name] = rows.select(_column(part).alias(name)).schema[name].dataType
            except AnalysisException as error:
                problems.append(_unknown(name, part, rows, error))
        problems += [
            Problem(where=name, value=types[name].simpleString(), cause=cause, remedy=remedy)
            for name, accepted, cause, remedy in _TAKEN
            if name in types and not isinstance(types[name], accepted)
        ]
        return types, problems

    def prepared(self, rows: DataFrame, partitions: int, tasks: int) -> DataFrame:
        """Return columns partition, key, value (bytes) and timestamp (ms), each partition sorted and in one task."""
        records = self._selected(rows)
        orders = [name for name in records.columns if name.startswith("order_")]
        key, value = F.col("key").cast("binary"), _text(records.schema["value"].dataType).cast("binary")
        timestamp = _milliseconds(records.schema["timestamp"].dataType)
        return (
            records.select(key.alias("key"), value.alias("value"), timestamp.alias("timestamp"), *orders)
            .withColumn("partition", F.pmod(F.hash("key"), F.lit(partitions)))
            .repartitionById(tasks, F.col("partition"))
            .sortWithinPartitions("partition", *orders, "timestamp", "key", "value")
            .select("partition", "key", "value", "timestamp")
        )

    def _selected(self, rows: DataFrame) -> DataFrame:
        return rows.select(*(_column(part).alias(name) for name, part in self._parts.items()))

    @property
    def _parts(self) -> dict[str, ColumnOrName]:
        orders = [self.order_by] if isinstance(self.order_by, Column | str) else list(self.order_by)
        parts = {"key": self.key, "value": self.value, "timestamp": self.timestamp}
        return {**parts, **{f"order_{place}": order for place, order in enumerate(orders)}}


_BYTES = (StringType, BinaryType)
_AS_TEXT = "make it text: to_json(struct(...)), or cast('string')"
_TAKEN = (
    ("key", _BYTES, "neither a string nor binary", _AS_TEXT),
    ("value", (*_BYTES, StructType), "neither a string nor binary, nor a struct", _AS_TEXT),
    ("timestamp", (TimestampType, LongType, IntegerType), "neither a timestamp nor a number of ms", "cast it to one"),
)


def _column(part: ColumnOrName) -> Column:
    return F.col(part) if isinstance(part, str) else part


def _unknown(name: str, part: ColumnOrName, rows: DataFrame, error: AnalysisException) -> Problem:
    """Return the problem that Spark cannot resolve a column."""
    shown = part if isinstance(part, str) else str(part)
    cause = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
    if error.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION":
        cause = "the DataFrame has no such column"
    return Problem(where=name, value=shown, cause=cause, remedy=f"there are: {', '.join(rows.columns)}")


def _text(kind: DataType) -> Column:
    value = F.col("value")
    return F.to_json(value) if isinstance(kind, StructType) else value


def _milliseconds(kind: DataType) -> Column:
    timestamp = F.col("timestamp")
    return F.unix_millis(timestamp) if isinstance(kind, TimestampType) else timestamp.cast("long")
