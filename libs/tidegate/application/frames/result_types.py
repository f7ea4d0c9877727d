"""The types of a chain's results in Spark, so that JSON becomes typed columns again.

Where a chain passes the values of its DataFrames on, they get back the very types that they had there: decimals,
timestamps, dates, arrays and maps. What steps compute has the types of their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tidegate.contracts.config import OperatorRules
from tidegate.contracts.values import Values

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_COMPUTED = {"with_columns", "select", "map", "flat_map"}
"""Steps behind which a field may have another content than in the DataFrame, though of the same type in JSON."""

_SQL_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
}


class Results(NamedTuple):
    """What is known of the values of a chain's results: their type in Spark, and whether they are JSON objects."""

    type: DataType | str
    is_object: bool

    def typed(self, value: Column) -> Column:
        """Return the column of values, which is JSON text, with their type."""
        from pyspark.sql import functions as F

        if self.is_object:
            return F.from_json(value, self.type)
        return F.from_json(F.concat(F.lit("["), value, F.lit("]")), f"array<{self.type}>")[0]


def results_of(
    rules: OperatorRules, written: Mapping[str, Any], before: Values, stream: DataType, table: DataType | None
) -> Results | None:
    """Return what is known of the results of these rules; None if their values are text or bytes.

    `written`: the rules as a file has them. `before`, `stream`: what is known of the stream's values, and their type.
    `table`: the type of those of the table that the stream is joined with.
    """
    from pyspark.sql.types import StructField, StructType

    values = rules.results(before, None)
    passed_on = not _COMPUTED & {verb for step in written.get("steps", ()) for verb in step}
    if values.form in ("bytes", "string"):
        return None
    if passed_on and values == before:
        return Results(stream, is_object=True)
    if passed_on and values.form == "joined" and table is not None:
        sides = [StructField("stream", stream), StructField("table", table)]
        return Results(StructType(sides), is_object=True)
    if values.form == "single":
        return Results(_sql_type(values.schema.field(0).type), is_object=False)
    return Results(_sql_type(_objects(values)), is_object=True)


def _objects(values: Values) -> pa.DataType:
    """Return the type of the objects: those of a join have the fields of both sides below `stream` and `table`."""
    if values.form == "object":
        return pa.struct(values.schema)
    *stream, table = values.schema
    return pa.struct([pa.field("stream", pa.struct(stream)), pa.field("table", table.type)])


def _sql_type(kind: pa.DataType) -> str:
    if not pa.types.is_struct(kind):
        return _SQL_TYPES[kind]
    return f"struct<{','.join(f'`{field.name}`:{_sql_type(field.type)}' for field in kind)}>"
