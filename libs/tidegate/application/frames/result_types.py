"""The types of a chain's results in Spark, so that JSON becomes typed columns again.

Where a chain passes the values of its DataFrames on, they get back the very types that they had there: decimals,
timestamps, dates, arrays and maps. What steps compute has the types of their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.values import Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_COMPUTED = {"with_columns", "select", "map", "flat_map"}
"""Steps behind which a field may have another content than in the DataFrame, though of the same type in JSON."""


class TypedValues(NamedTuple):
    """Values that are JSON text: their type in Spark, and whether they are JSON objects."""

    type: DataType
    is_object: bool

    def typed(self, value: Column) -> Column:
        """Return the column of values with their type."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType

        from tidegate.runtime.stream.json_text import value_of

        if self.is_object:
            return value_of(value, self.type)
        return value_of(F.concat(F.lit("["), value, F.lit("]")), ArrayType(self.type))[0]


class Results(NamedTuple):
    """What is known of the results of a chain: the type of their keys, and of values that do not stay as they are."""

    keys: DataType | None
    values: TypedValues | None

    def typed(self, rows: DataFrame) -> DataFrame:
        """Return the rows of emissions with typed keys and values."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ByteType, StructType

        from tidegate.runtime.stream.json_text import value_of

        found = {}
        if isinstance(self.keys, StructType):
            found["key"] = value_of(F.col("key"), self.keys)
        if isinstance(self.keys, ByteType):
            found["key"] = F.col("key").cast("byte")  # Kafka has no serializer for it: it is a short in the log
        if self.values is not None:
            found["value"] = self.values.typed(F.col("value"))
        return rows.withColumns(found) if found else rows


def pairs_of(**sides: DataType | None) -> TypedValues | None:
    """Return what is known of objects that have a value of each side; None if one of these is no struct."""
    from pyspark.sql.types import StructField, StructType

    if not all(isinstance(side, StructType) for side in sides.values()):
        return None
    return TypedValues(StructType([StructField(name, side) for name, side in sides.items()]), is_object=True)


def values_of(
    rules: OperatorRules, written: Mapping[str, Any], before: Values, stream: DataType, table: DataType | None
) -> TypedValues | None:
    """Return what is known of the results' values under these rules; None if they are text or bytes.

    `written`: the rules as a file has them. `before`, `stream`: what is known of the stream's values, and their type.
    `table`: the type of those of the table that the stream is joined with.
    """
    values = rules.results(before, None)
    passed_on = not _COMPUTED & {verb for step in written.get("steps", ()) for verb in step}
    if values.form in ("bytes", "string"):
        return None
    if passed_on and values == before:
        return TypedValues(stream, is_object=True)
    if passed_on and values.form == "joined" and (pairs := pairs_of(stream=stream, table=table)) is not None:
        return pairs
    if values.form == "single":
        return TypedValues(_spark_type(values.schema.field(0).type), is_object=False)
    return TypedValues(_spark_type(_objects(values)), is_object=True)


def _objects(values: Values) -> pa.DataType:
    """Return the type of the objects: those of a join have the fields of both sides below `stream` and `table`."""
    if values.form == "object":
        return pa.struct(values.schema)
    *stream, table = values.schema
    return pa.struct([pa.field("stream", pa.struct(stream)), pa.field("table", table.type)])


def _spark_type(kind: pa.DataType) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)
