"""The beginning of a chain on a streaming DataFrame: which columns are key, value and time, and of which types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tidegate.application.definitions.definition import Definition
from tidegate.application.frames.source import FrameSource
from tidegate.application.options import Duration, Fault
from tidegate.application.places import caller
from tidegate.application.streams.stream import Stream
from tidegate.application.streams.table import Table
from tidegate.contracts.values import decimal_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def stream(
    df: DataFrame,
    *,
    key: Column | str,
    timestamp: Column | str,
    order_by: Column | str | Sequence[Column | str],
    value: Column | str | None = None,
    max_ahead: Duration | None = None,
    rewind_window: Duration | None = None,
    time: Literal["records"] | None = None,
) -> Stream:
    """Return the rows of a streaming DataFrame, from which an operator grows; `.start(NAME, lake=...)` starts it.

    `key`: a string, binary or a whole number, or a struct of these, of truth values, decimals, dates and times; steps
    read a struct as JSON text. `timestamp`: a timestamp, or whole ms. `order_by`: columns that give the order of rows
    within a batch. `value`: a struct, a string or binary; default: a struct of all columns. Steps read the fields of a
    struct, with their types. Rows with a null key or a null timestamp become rejected rows. `max_ahead`: rows further
    ahead of the clock are rejected. `rewind_window`: how far back the log can be read. `time`: in a pipeline the time
    of each step follows that of the steps before it; with `records`, as in Kafka Streams, the rows that arrive at it
    alone.
    """
    options = {"max_ahead": max_ahead, "rewind_window": rewind_window}
    types = {} if time is None else {"time": time}
    columns: dict[str, Any] = {"key": key, "value": _whole(value), "timestamp": timestamp, "order_by": order_by}
    definition, source, _ = _begun(df, ".stream", options, types, **columns)
    return Stream(definition, source)


def table(
    df: DataFrame,
    *,
    key: Column | str,
    timestamp: Column | str,
    order_by: Column | str | Sequence[Column | str],
    value: Column | str | None = None,
    history: Duration | None = None,
    versions: Literal["latest"] | None = None,
    max_ahead: Duration | None = None,
    rewind_window: Duration | None = None,
    name: str = "table",
) -> Table:
    """Return a table of the rows of a streaming DataFrame: every version of every key for the `history` (KIP-889).

    `versions="latest"`: keep the latest values alone, instead of a history. `name`: under which a join with it has its
    views, and expressions behind the join its value. The other options are those of `stream`.

    A row with a null value ends the key's version. In a change data feed of Delta (a column `_change_type`) deletes do
    that, and rows as they were before an update are left out.
    """
    options = {
        "kind": "table_history",
        "history_retention": history,
        "versions": versions,
        "max_ahead": max_ahead,
        "rewind_window": rewind_window,
    }
    columns: dict[str, Any] = {"key": key, "value": _whole(value), "timestamp": timestamp, "order_by": order_by}
    if CHANGE in df.columns:
        df, columns["value"] = df.where(f"{CHANGE} <> 'update_preimage'"), _undeleted(df, value)
    definition, source, fields = _begun(df, ".table", options, {}, name, **columns)
    return Table(definition, source, fields)


def _whole(value: Column | str | None) -> Column | str:
    """Return the value's column; by default all columns in a struct."""
    from pyspark.sql import functions as F

    return F.struct("*") if value is None else value


CHANGE = "_change_type"
"""The column in which a change data feed of Delta says what became of a row; others of the feed begin with _commit."""


def _undeleted(df: DataFrame, value: Column | str | None) -> Column:
    """Return the value's column, by default all columns of the table in a struct; null for a deleted row."""
    from pyspark.sql import functions as F

    from tidegate.runtime.spark.queries import quoted

    own = [quoted(name) for name in df.columns if name != CHANGE and not name.startswith("_commit_")]
    kept = F.struct(*own) if value is None else F.col(value) if isinstance(value, str) else value
    return F.when(F.col(CHANGE) != "delete", kept)


def _begun(
    df: DataFrame, verb: str, options: dict[str, Any], types: dict[str, Any], name: str = "", **given: Any
) -> tuple[Definition, FrameSource, dict[str, Any] | None]:
    """Return the definition that begins with the DataFrame, its source, and the fields of its values if known."""
    from tidegate.runtime.stream.columns import StreamColumns

    columns = StreamColumns(**given)
    found, problems = columns.examined(df)
    place = caller()
    faults = [] if df.isStreaming else [Fault(df, "the DataFrame is not a stream", "read it with spark.readStream")]
    formats, of_steps = _formats(found.get("key"), found.get("value"))
    definition = Definition("").after(verb, place, {**options, **formats}, faults)
    placed = [replace(problem, where=f"{place} {verb}(), {problem.where}") for problem in problems]
    definition = replace(definition, types={**types, **of_steps}, problems=(*definition.problems, *placed))
    fields = fields_of(found["value"]) if of_steps.get("value") not in (None, "string") else None
    source = FrameSource(df, columns, key_type=found.get("key"), value_type=found.get("value"), name=name)
    return definition, source, fields


def _formats(key: DataType | None, value: DataType | None) -> tuple[dict[str, str], dict[str, Any]]:
    """Return in which formats views show keys and values of these types, and the types by which steps read them."""
    from pyspark.sql.types import StringType, StructType

    from tidegate.runtime.stream.columns import NUMBERS

    formats: dict[str, str] = {}
    types: dict[str, Any] = {}
    if isinstance(key, StringType):
        formats["key_format"] = types["key"] = "string"
    if isinstance(key, StructType):
        formats["key_format"], types["key"] = "json", "string"
    if type(key) in NUMBERS:
        formats["key_format"] = types["key"] = NUMBERS[type(key)]
    if isinstance(value, StringType):
        formats["value_format"] = types["value"] = "string"
    if isinstance(value, StructType):
        formats["value_format"], types["value"] = "json", {"json": fields_of(value)}
    return formats, types


def fields_of(struct: StructType) -> dict[str, Any]:
    """Return the fields of the JSON objects that Spark makes of a struct, with their types.

    Binary is text; what else there is, such as arrays and maps, stays JSON.
    """
    from pyspark.sql.types import StructType

    return {
        field.name: fields_of(field.dataType) if isinstance(field.dataType, StructType) else _type_of(field.dataType)
        for field in struct.fields
    }


def _type_of(kind: DataType) -> str:
    name = kind.simpleString()
    return name if decimal_of(name) is not None else _TYPES.get(kind.typeName(), "json")


_TYPES = {
    "boolean": "bool",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    **{name: name for name in ("date", "timestamp", "timestamp_ntz")},
    **dict.fromkeys(("string", "binary"), "string"),
}
"""Types of fields, by the names of Spark's types."""
