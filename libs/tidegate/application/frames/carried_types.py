"""The types that fields of a DataFrame keep through the steps of a chain, as far as steps pass them on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.contracts.config.rules import JsonField, OperatorRules
from tidegate.contracts.values import Path, Values
from tidegate.expressions.references import reference_of
from tidegate.operators.pipeline.config import PipelineRules
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.reading import behind, expressions_of
from tidegate.operators.pipeline.rules.steps import FlatMap, Map, Select, Sink, Stateful, StepRules, WithColumns
from tidegate.operators.pipeline.steps import INPUT
from tidegate.operators.stream_table_join.config import StreamTableJoinRules
from tidegate.operators.windowed_aggregation.config import WindowedAggregationRules

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def spark_type(kind: pa.DataType) -> DataType:
    """Return the type in Spark of what has this type in Arrow."""
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def carried(rules: OperatorRules, before: Values, stream: StructType, table: DataType | None) -> StructType:
    """Return the columns that expressions behind the rules would see, with their types in Spark.

    Fields that pass unchanged have those of the DataFrame: `stream`, and of the table that is joined `table`. Others
    have those of what is known of them.
    """
    if not isinstance(rules, PipelineRules):
        return _behind_operator(rules, before, rules.results(before, None), stream, table)
    found, last = {INPUT: stream}, stream
    for step, place in zip(rules.steps, rules.places(), strict=False):  # the last place has no step behind it
        read = [found[name] for name in step.sources] or [last]
        alike = read[0] if all(each == read[0] for each in read) else _struct(place.values.schema, {})
        last = _behind(step, place, alike, table)
        if not isinstance(step, Sink) and step.name is not None:
            found[step.name] = last
    return last


def _behind(step: StepRules, place: Place, fields: StructType, table: DataType | None) -> StructType:
    """Return the columns behind a step, of the fields before it."""
    match step:
        case WithColumns() | Select():
            kept = {} if isinstance(step, Select) else {field.name: field.dataType for field in fields}
            made = {name: _referenced(reference_of(each), fields) for name, each in expressions_of(step, place).items()}
            return _struct(behind(step, place).values.schema, kept | made)
        case Map() | FlatMap():
            return _struct(step.emits, {})
        case Stateful():
            after = place.behind(step.rules, step.emits).values
            return _behind_operator(step.rules, place.values, after, fields, table)
        case _:
            return fields


def _behind_operator(
    rules: OperatorRules, before: Values, after: Values, fields: StructType, table: DataType | None
) -> StructType:
    """Return the columns of the results of an operator that holds state."""
    if after.form == "joined":
        [*_, name] = after.schema.names
        return _struct(after.schema, {**{field.name: field.dataType for field in fields}, name: table})
    if isinstance(rules, StreamTableJoinRules) and rules.joiner is None:
        return _struct(after.schema, {"stream": fields})  # nothing is known of the table's values
    if isinstance(rules, WindowedAggregationRules):
        return _struct(after.schema, {name: _referenced(path, fields) for name, path in _chosen(rules)})
    return fields if after == before else _struct(after.schema, {})


def _chosen(rules: WindowedAggregationRules) -> Iterator[tuple[str, Path]]:
    """Yield the aggregates that choose one of the values of a field, with the path of that field."""
    for entry in rules.aggregate.entries:
        if entry.kind in ("first", "last") and isinstance(entry.source, JsonField):
            yield entry.name, entry.source.names


def _referenced(path: Path | None, fields: StructType) -> DataType | None:
    """Return the type of the field at the path; None if it is none of these, or if there is no path."""
    from pyspark.sql.types import StructType

    found: DataType | None = fields if path else None
    for name in path or ():
        inside = found.fields if isinstance(found, StructType) else ()
        found = next((field.dataType for field in inside if field.name == name), None)
    return found


def _struct(schema: pa.Schema, known: Mapping[str, DataType | None]) -> StructType:
    """Return the fields of the schema with the types that are known, or else those of the schema."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, known.get(field.name) or spark_type(field.type)) for field in schema])
