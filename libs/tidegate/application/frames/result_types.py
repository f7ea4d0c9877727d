"""The types of a chain's results in Spark, so that JSON becomes typed columns again.

Fields that a chain passes on get back the very types that they had in its DataFrames: decimals, timestamps, dates,
arrays and maps. What steps compute has the types of their fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tidegate.application.frames.carried_types import carried
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.values import PRIMITIVES, Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


class TypedValues(NamedTuple):
    """Values that are JSON text: their type in Spark, and whether they are JSON objects.

    `written`: the type as which they are in the JSON text, if it differs; see `value_of`.
    """

    type: DataType
    is_object: bool
    written: DataType | None = None

    def typed(self, value: Column) -> Column:
        """Return the column of values with their type."""
        from tidegate.runtime.stream.json_text import bare_value_of, value_of

        return (value_of if self.is_object else bare_value_of)(value, self.type, self.written)


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


def values_of(rules: OperatorRules, before: Values, stream: StructType, table: DataType | None) -> TypedValues | None:
    """Return what is known of the results' values under these rules; None if they are text or bytes.

    `before`, `stream`: what is known of the stream's values, and their type. `table`: the type of those of the table
    that the stream is joined with.
    """
    values = rules.results(before, None)
    if values.form in PRIMITIVES:
        return None
    fields = carried(rules, before, stream, table)
    type, schema = _sides(fields, values.schema) if values.form == "joined" else (fields, values.schema)
    if values.form == "single":
        [kind], [known] = type.fields, schema
        return TypedValues(kind.dataType, False, as_written(kind.dataType, known.type))
    return TypedValues(type, True, as_written(type, pa.struct(schema)))


def _sides(fields: StructType, schema: pa.Schema) -> tuple[StructType, pa.Schema]:
    """Return the objects of a join, in both types: the fields of its sides are below `stream` and `table`."""
    from pyspark.sql.types import StructField, StructType

    types = StructType(fields.fields[:-1]), fields[-1].dataType
    *stream, table = schema
    named = zip(("stream", "table"), types, strict=True)
    objects = StructType([StructField(name, type) for name, type in named])
    return objects, pa.schema({"stream": pa.struct(stream), "table": table.type})


def as_written(type: DataType, known: pa.DataType) -> DataType:
    """Return the type with strings where an expression has made a string of the JSON text of an array, a map and so on.

    `known`: the type as steps know it.
    """
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    if isinstance(type, StructType) and pa.types.is_struct(known):
        pairs = zip(type.fields, known, strict=True)
        return StructType(
            [StructField(each.name, as_written(each.dataType, as_known.type)) for each, as_known in pairs]
        )
    is_text = known == pa.string() and not isinstance(type, StringType | BinaryType)
    return StringType() if is_text else type
