"""Evaluates expressions that build on each other, all in one query: what one layer computes, the next may read."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.expressions.checking import ROWS, Expression
from tidegate.expressions.column import quoted
from tidegate.expressions.engine import engine
from tidegate.expressions.references import reference_of


class Layer(NamedTuple):
    """Expressions over the columns of the layer before.

    `named`: True if their values become columns by their names. `without`: columns that are gone behind the layer.
    """

    expressions: Mapping[str, Expression]
    named: bool = False
    without: frozenset[str] = frozenset()


class Evaluated(NamedTuple):
    """The values of a layer's expressions, and per row whether one of them could not be evaluated."""

    values: list[pa.Array]
    failed: npt.NDArray[np.bool_]


class Answer(NamedTuple):
    """What each layer evaluated, and the fields of the last one as JSON objects, if that was asked for."""

    layers: list[Evaluated]
    objects: Evaluated | None


def evaluate_layers(layers: Sequence[Layer], rows: pa.RecordBatch, objects: pa.Schema | None = None) -> Answer:
    """Evaluate the layers for every row, in order. A row that cannot be evaluated does not stop the others.

    `objects`: the fields that are written as a JSON object for each row. A computed number that is not finite fails,
    and so does a date or a time outside of the years 1 to 9999.
    """
    if objects is None and all(map(_compares, layers)):
        return Answer([_compared(layer, rows) for layer in layers], None)
    query = _Query(rows.schema.names)
    for layer in layers:
        query.add(layer)
    found = _answer(query.text(objects), rows)
    names = iter(found.schema.names)
    evaluated = [_evaluated([found[next(names)] for _ in layer.expressions], rows.num_rows) for layer in layers]
    return Answer(evaluated, None if objects is None else _evaluated([found[next(names)]], rows.num_rows))


def objects_of(fields: pa.RecordBatch) -> Evaluated:
    """Return each row, made by a function, as a JSON object, and which of them cannot be written.

    Those are the rows of which `evaluate_layers` says so, and those with JSON text that is none.
    """
    limits = [*_limits(fields.schema, fields.schema.names), *_are_json(fields.schema)]
    found = _answer(f"SELECT {_object(fields.schema, limits)} FROM {ROWS}", fields)
    return _evaluated([found[0]], fields.num_rows)


def _compares(layer: Layer) -> bool:
    """Return whether the layer is nothing but comparisons that Arrow evaluates, and makes no columns."""
    return not layer.named and all(each.comparison is not None for each in layer.expressions.values())


def _compared(layer: Layer, rows: pa.RecordBatch) -> Evaluated:
    values = [each.comparison.of(rows) for each in layer.expressions.values() if each.comparison is not None]
    return Evaluated(values, np.zeros(rows.num_rows, np.bool_))


class _Query:
    """The text of a query that grows by a layer at a time.

    TRY turns a failure into null; the struct around a value tells that from a value that is null.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._from = ROWS
        self._found: list[str] = []
        self._computed: set[str] = set()
        self._mark = "#" * (1 + max((len(name) - len(name.lstrip("#")) for name in columns), default=0))

    def add(self, layer: Layer) -> None:
        first = len(self._found)
        wrapped = {name: f"{self._mark}{at}" for at, name in enumerate(layer.expressions, first)}
        known = map(quoted, (*self._columns, *self._found))
        values = [
            f"TRY({{'value': (\n{each.text}\n)}}) AS {quoted(wrapped[name])}"
            for name, each in layer.expressions.items()
        ]
        self._from = f"(SELECT {', '.join([*known, *values])} FROM {self._from})"
        self._found += wrapped.values()
        if layer.named:
            made = {name for name, each in layer.expressions.items() if self._computes(each)}
            self._rename(wrapped, layer.without)
            self._computed = self._computed - {*layer.expressions} | made

    def _computes(self, expression: Expression) -> bool:
        """Return whether the values are none that the rows have already."""
        path = reference_of(expression)
        return path is None or path[0] in self._computed

    def _rename(self, wrapped: Mapping[str, str], without: frozenset[str]) -> None:
        gone = {name.lower() for name in (*wrapped, *without)}  # SQL does not tell upper from lower case
        kept = [name for name in self._columns if name.lower() not in gone]
        made = [f"{_field(quoted(at), 'value')} AS {quoted(name)}" for name, at in wrapped.items()]
        found = map(quoted, self._found)
        self._from = f"(SELECT {', '.join([*map(quoted, kept), *made, *found])} FROM {self._from})"
        self._columns = [*kept, *wrapped]

    def text(self, objects: pa.Schema | None) -> str:
        """Return the query; its last column is the JSON object of these fields, if any."""
        columns = [quoted(name) for name in self._found]
        if objects is not None:
            columns.append(_object(objects, _limits(objects, self._computed)))
        return f"SELECT {', '.join(columns)} FROM {self._from}"


def _object(schema: pa.Schema, limits: Sequence[str]) -> str:
    """Return the text of the JSON object of a row; it fails where one of the limits is false."""
    value = f"TRY({{'value': encode({_members('', schema)})}})"
    return f"CASE WHEN {' AND '.join(limits)} THEN {value} END" if limits else value


def _members(path: str, fields: Iterable[pa.Field]) -> str:
    """Return the text of a JSON object of the fields, which are columns, or inside of the struct at the path."""
    parts = [_literal("{")]
    for at, field in enumerate(fields):
        parts.append(_literal(f"{',' if at else ''}{json.dumps(field.name, ensure_ascii=False)}:"))
        parts.append(_json(_within(path, field.name), field.type))
    return f"concat({', '.join([*parts, _literal('}')])})"


def _json(path: str, type: pa.DataType) -> str:
    """Return the JSON text of a field's value, which is never null: times are text of ISO 8601.

    JSON text stays as it is: DuckDB would read its numbers as doubles.
    """
    if pa.types.is_large_string(type):
        return f"coalesce({path}, 'null')"
    if pa.types.is_struct(type):
        return f"CASE WHEN {path} IS NULL THEN 'null' ELSE {_members(path, type)} END"
    value = _scalar(path, type)
    text = f"coalesce(CAST(to_json({value}) AS VARCHAR), 'null')"
    return f"CASE {_not_finite(value)} ELSE {text} END" if pa.types.is_floating(type) else text


def _not_finite(value: str) -> str:
    """Return the cases of a float that is no number of JSON: it is the text that Spark writes and reads."""
    cases = {"isnan({})": "NaN", "{} = 'Infinity'": "Infinity", "{} = '-Infinity'": "-Infinity"}
    return " ".join(f"WHEN {case.format(value)} THEN '\"{text}\"'" for case, text in cases.items())


def _scalar(path: str, type: pa.DataType) -> str:
    """Return a field's value as DuckDB writes it to JSON correctly.

    DuckDB writes no digit before the point of decimals that have none there, which is not JSON.
    """
    if pa.types.is_float64(type):
        return f"CAST({path} AS DOUBLE)"
    if pa.types.is_decimal(type) and type.precision == type.scale:
        return f"CAST({path} AS DECIMAL({type.precision + 1},{type.scale}))"
    if pa.types.is_timestamp(type):
        return f"strftime({path}, '{_TIME if type.tz is None else _MOMENT}')"
    return path


_TIME = "%Y-%m-%dT%H:%M:%S.%f"
_MOMENT = f"{_TIME}Z"


def _scalars(fields: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield the path and the type of each field, of structs those of the fields inside."""
    for field in fields:
        within = _within(path, field.name)
        if pa.types.is_struct(field.type):
            yield from _scalars(field.type, within)
        else:
            yield within, field.type


def _limits(schema: pa.Schema, computed: Collection[str]) -> list[str]:
    """Return the conditions of which one is false for a row with a value that JSON does not have.

    `computed`: the columns in which that is true of floats that are not finite, too.
    """
    limits = [_years(path, type) for path, type in _scalars(schema)]
    floats = [field for field in schema if field.name in computed]
    limits += [f"isfinite({path})" for path, type in _scalars(floats) if pa.types.is_floating(type)]
    return [f"coalesce({limit}, true)" for limit in limits if limit is not None]


def _years(path: str, type: pa.DataType) -> str | None:
    """Return the condition that a date or a time is in the years that JSON has; None for other types."""
    if pa.types.is_date32(type):
        return f"{path} BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
    if not pa.types.is_timestamp(type):
        return None
    kind = "TIMESTAMP" if type.tz is None else "TIMESTAMPTZ"
    first, last = (f"{kind} '{time}'" for time in ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"))
    return f"{path} BETWEEN {first} AND {last}"


def _are_json(schema: pa.Schema) -> list[str]:
    """Return the conditions of which one is false for a row with JSON text that is none.

    DuckDB takes commas before a closing bracket, NaN and Infinity, too, which are then not in a string.
    """
    texts = [path for path, type in _scalars(schema) if pa.types.is_large_string(type)]
    outside = (f"regexp_replace({path}, '{_STRING}', '0', 'g')" for path in texts)
    return [
        f"coalesce(json_valid({path}) AND NOT regexp_matches({left}, '{_NO_JSON}'), true)"
        for path, left in zip(texts, outside, strict=True)
    ]


_STRING = r'"([^"\\]|\\.)*"'
_NO_JSON = r"(?i),\s*[\]}]|nan|inf"


def _within(path: str, name: str) -> str:
    """Return the path of the field in the struct at the path; of a column if there is none."""
    return _field(path, name) if path else quoted(name)


def _field(path: str, name: str) -> str:
    return f"struct_extract({path}, {_literal(name)})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _answer(query: str, rows: pa.RecordBatch) -> pa.Table:
    connection = engine()
    connection.register(ROWS, pa.Table.from_batches([rows]))
    try:
        found = connection.execute(query).to_arrow_table()
    finally:
        connection.unregister(ROWS)
    if found.num_rows != rows.num_rows:
        raise AssertionError("an expression has one value per row")
    return found


def _evaluated(wrapped: Sequence[pa.ChunkedArray], rows: int) -> Evaluated:
    columns = [column.combine_chunks() for column in wrapped]
    failed = np.zeros(rows, np.bool_)
    for column in columns:
        failed |= column.is_null().to_numpy(zero_copy_only=False)
    return Evaluated([pc.struct_field(column, 0) for column in columns], failed)
