"""Partitions and sorts the rows of a Spark batch for the tasks.

A row's partition is `pmod(hash(key), partitions)` with Spark's `hash` (Murmur3) of the key's bytes. Within a partition
rows are sorted by `order_by`; ties are broken by timestamp, key and value, so that the order does not depend on Spark's
shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from tidegate.contracts.errors import ConfigurationError, Problem
from tidegate.contracts.records import STREAM_PORT, TABLE_PORT
from tidegate.contracts.values import PRIMITIVES, Primitive
from tidegate.runtime.spark.queries import unlogged
from tidegate.runtime.stream.json_text import json_of, maps_without_text
from tidegate.runtime.stream.merging import STREAM

ColumnOrName: TypeAlias = Column | str


@dataclass(frozen=True, kw_only=True)
class StreamColumns:
    """The DataFrame columns that hold a record's key, value, timestamp and order, as names or expressions.

    A struct becomes a JSON object of its fields; a whole number as the key has the bytes of Kafka's serializers.
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
            for name, takes, cause, remedy in _TAKEN
            if name in types and not takes(types[name])
        ]
        problems += [
            Problem(where=name, value=kind.simpleString(), cause=_UNSORTABLE, remedy="name columns that have an order")
            for name, kind in types.items()
            if name.startswith(_ORDER) and not _is_sortable(kind)
        ]
        problems += map(_no_keys, maps_without_text(types.get("value", NullType())))
        return types, problems

    def prepared(self, rows: DataFrame, partitions: int, tasks: int) -> DataFrame:
        """Return columns partition, key, value (bytes) and timestamp (ms), each partition sorted and in one task."""
        return in_partitions(self.records(rows), partitions, tasks, RECORD)

    def records(self, rows: DataFrame) -> DataFrame:
        """Return columns key, value (bytes), timestamp (ms), and those of the order: order_0 and so on."""
        chosen = rows.select(*(_column(part).alias(name) for name, part in self._parts.items()))
        key, value = (_bytes(part, chosen.schema[part].dataType) for part in ("key", "value"))
        timestamp = _milliseconds(chosen.schema["timestamp"].dataType)
        record = (key.alias("key"), value.alias("value"), timestamp.alias("timestamp"))
        return chosen.select(*record, *_orders(chosen))

    @property
    def _parts(self) -> dict[str, ColumnOrName]:
        orders = [self.order_by] if isinstance(self.order_by, Column | str) else list(self.order_by)
        parts = {"key": self.key, "value": self.value, "timestamp": self.timestamp}
        return {**parts, **{f"{_ORDER}{place}": order for place, order in enumerate(orders)}}


@dataclass(frozen=True, kw_only=True)
class JoinedColumns:
    """The columns of a stream, and of the table that it is joined with. Both have their rows in one DataFrame."""

    stream: StreamColumns
    table: StreamColumns

    def united(self, stream: DataFrame, table: DataFrame) -> DataFrame:
        """Return the records of both; `port` says of which they are. Each side has order columns of its own."""
        of_stream = _numbered(self.stream.records(stream), "port", STREAM_PORT)
        of_table = _numbered(self.table.records(table), "port", TABLE_PORT)
        return of_stream.unionByName(of_table, allowMissingColumns=True)

    def prepared(self, rows: DataFrame, partitions: int, tasks: int) -> DataFrame:
        """Return the columns of `StreamColumns.prepared` and port, of rows that `united` made.

        Each partition has the table's rows first, then the stream's.
        """
        # rule: table-before-stream
        return in_partitions(rows, partitions, tasks, ("port", *RECORD), F.desc("port"))


@dataclass(frozen=True, kw_only=True)
class TwoStreams:
    """The columns of two streams that are joined. Both have their rows in one DataFrame."""

    left: StreamColumns
    right: StreamColumns

    def united(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Return the records of both; `stream` says of which they are. Each side has order columns of its own."""
        of_left = _numbered(self.left.records(left), STREAM, 0)
        of_right = _numbered(self.right.records(right), STREAM, 1)
        return of_left.unionByName(of_right, allowMissingColumns=True)

    def prepared(self, rows: DataFrame, partitions: int, tasks: int) -> DataFrame:
        """Return the columns of `StreamColumns.prepared` and stream, of rows that `united` made.

        Each partition has the left stream's rows first; the task merges them with those of the right one.
        """
        return in_partitions(rows, partitions, tasks, (STREAM, *RECORD), F.col(STREAM))


Columns: TypeAlias = StreamColumns | JoinedColumns | TwoStreams

RECORD = ("key", "value", "timestamp")


def _numbered(records: DataFrame, name: str, number: int) -> DataFrame:
    """Return the records with the number in a column of that name, and their order columns named after both."""
    orders = (F.col(order).alias(f"{name}_{number}_{order}") for order in _orders(records))
    return records.select(F.lit(number).cast("tinyint").alias(name), *RECORD, *orders)


def in_partitions(records: DataFrame, partitions: int, tasks: int, columns: Sequence[str], *first: Column) -> DataFrame:
    """Return column partition and these columns, each partition in one task, and sorted by `first`, then its order."""
    return (
        records.withColumn("partition", F.pmod(F.hash("key"), F.lit(partitions)))
        .repartitionById(tasks, F.col("partition"))
        .sortWithinPartitions("partition", *first, *_orders(records), "timestamp", "key", "value")
        .select("partition", *columns)
    )


def _orders(records: DataFrame) -> list[str]:
    return [name for name in records.columns if _ORDER in name]


_ORDER = "order_"
"""How the names of columns begin that give the order of rows."""

_TEXTS = (StringType, BinaryType)
NUMBERS: dict[type[DataType], Primitive] = {
    ByteType: "int16",
    ShortType: "int16",
    IntegerType: "int32",
    LongType: "int64",
}
"""Types of whole numbers, and the formats of Kafka in which keys of them are written."""
_WITHOUT_ORDER = (MapType, VariantType, CalendarIntervalType)
_IN_KEYS = (*_TEXTS, *NUMBERS, BooleanType, DateType, DecimalType, TimestampType, TimestampNTZType)
_TIMES = (TimestampType, LongType, IntegerType)


def _is_key(kind: DataType) -> bool:
    return isinstance(kind, (*_TEXTS, *NUMBERS)) or _is_key_of_fields(kind)


def _is_key_of_fields(kind: DataType) -> bool:
    """Return whether it is a struct, whose equal values have one JSON text: also without maps and fractions in it."""
    return isinstance(kind, StructType) and all(
        isinstance(field.dataType, _IN_KEYS) or _is_key_of_fields(field.dataType) for field in kind.fields
    )


_UNSORTABLE = "rows cannot be sorted by maps and variants"


def _is_sortable(kind: DataType) -> bool:
    """Return whether values have an order: those of structs and arrays have one if what is in them has one."""
    if isinstance(kind, StructType):
        return all(_is_sortable(field.dataType) for field in kind.fields)
    return _is_sortable(kind.elementType) if isinstance(kind, ArrayType) else not isinstance(kind, _WITHOUT_ORDER)


_TAKEN: tuple[tuple[str, Callable[[DataType], bool], str, str], ...] = (
    (
        "key",
        _is_key,
        "neither text, binary nor a whole number, nor a struct of such, of truth values, decimals, dates and times",
        "put it into a struct, as in F.struct('day'); or cast it to a string",
    ),
    (
        "value",
        lambda kind: isinstance(kind, (*_TEXTS, StructType)),
        "neither a string nor binary, nor a struct",
        "put it into a struct, as in F.struct('wind')",
    ),
    ("timestamp", lambda kind: isinstance(kind, _TIMES), "neither a timestamp nor a number of ms", "cast it to one"),
)


def _column(part: ColumnOrName) -> Column:
    return F.col(part) if isinstance(part, str) else part


def _no_keys(path: str) -> Problem:
    """Return the problem that the map at the path would lose its keys."""
    return Problem(
        where="value",
        value=path,
        cause="keys of maps that are no strings, numbers or truth values cannot be read again from JSON",
        remedy=f"make strings of them, as in F.transform_keys({path!r}, lambda key, _: key.cast('string'))",
    )


def _unknown(name: str, part: ColumnOrName, rows: DataFrame, error: AnalysisException) -> Problem:
    """Return the problem that Spark cannot resolve a column."""
    shown = part if isinstance(part, str) else str(part)
    cause = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
    if error.getCondition() == "UNRESOLVED_COLUMN.WITH_SUGGESTION":
        cause = "the DataFrame has no such column"
    return Problem(where=name, value=shown, cause=cause, remedy=f"there are: {', '.join(rows.columns)}")


def _bytes(part: str, kind: DataType) -> Column:
    """Return the key's or the value's bytes: a struct's are those of JSON text, a number's begin with the highest."""
    column = F.col(part)
    if isinstance(kind, StructType):
        return json_of(column).cast("binary")
    if (form := NUMBERS.get(type(kind))) is None:
        return column.cast("binary")
    digits = PRIMITIVES[form].bit_width // 4
    return F.unhex(F.right(F.lpad(F.hex(column), 16, "0"), F.lit(digits)))


def _milliseconds(kind: DataType) -> Column:
    timestamp = F.col("timestamp")
    return F.unix_millis(timestamp) if isinstance(kind, TimestampType) else timestamp.cast("long")
