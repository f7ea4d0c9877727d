"""Writes typed Arrow columns as Avro values in the wire format of a schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.avro import writing
from tidegate.kernels.codecs.avro.layout import Column, every, layout_of
from tidegate.kernels.codecs.avro.program import Program, Scratch
from tidegate.kernels.codecs.avro.schemas import Schema, columns_of, name_of, read_schema
from tidegate.kernels.codecs.port import CODE, Encoded
from tidegate.kernels.codecs.primitives import uuids_of
from tidegate.kernels.codecs.slots import Slots, slots
from tidegate.kernels.columns import binary_parts

_NUMBERS = {
    "boolean": writing.BOOL,
    "int": writing.INT,
    "long": writing.LONG,
    "float": writing.FLOAT,
    "double": writing.DOUBLE,
    "string": writing.SPAN,
    "bytes": writing.SPAN,
    "enum": writing.INT,
}
"""The instruction that writes a type."""
_NO_SYMBOL = 2**31
"""A number that INT refuses."""


class AvroEncoder:
    """Writes columns as records of a schema. `number`: that under which the schema is registered.

    Each field of the schema has a column of its name, or may be null, and then is. Raise InvalidValue if a column is
    not in the schema, or has a type that is not written as that of its field.
    """

    def __init__(self, columns: pa.Schema, schema: str, number: int) -> None:
        read = read_schema(schema)
        self._layout = layout_of(read, columns_of(read))
        _check(self._layout, pa.struct(columns), "")
        self._program = _compiled(read, self._layout)
        self._prefix = np.frombuffer(b"\0" + number.to_bytes(4, "big"), np.uint8)
        self._count = self._layout[-1].after if self._layout else 0
        self._reasons = [f"its {each.field.name} does not fit the schema" for each in every(self._layout)]

    def encode(self, columns: pa.RecordBatch) -> Encoded:
        """Write each row of the columns."""
        rows = columns.num_rows
        given, code = slots(self._count, rows), np.zeros(rows, CODE)
        filled = _Filled(code)
        for column in self._layout:
            if column.field.name in columns.schema.names:
                filled.fill(given, column, columns.column(column.field.name))
        data = filled.data()
        size = len(self._prefix) + writing.LONGEST * (2 * self._count)
        out, ends = np.empty(rows * size + len(data), np.uint8), np.zeros(rows + 1, np.int64)
        writing.write_rows(data, given, self._program, self._prefix, out, ends, code, Scratch.new())
        return Encoded.of(out[: ends[-1]], ends, code, self._reasons)


def _check(layout: Sequence[Column], columns: pa.StructType, path: str) -> None:
    names = {column.field.name: column for column in layout}
    for field in columns:
        if field.name not in names:
            remedy = "name the fields of the schema alone: {select: {NAME: SQL}}"
            raise InvalidValue(f"{path}{field.name} is no field of the schema", remedy)
    for name, column in names.items():
        at = columns.get_field_index(name)
        if at < 0 and not column.nullable:
            raise InvalidValue(
                f"{path}{name}, a field of the schema, is missing", "add it: {with_columns: {NAME: SQL}}"
            )
        if at >= 0:
            _check_type(column, columns.field(at).type, path + name)


def _check_type(column: Column, type: pa.DataType, path: str) -> None:
    if column.inside and pa.types.is_struct(type):
        return _check(column.inside, type, f"{path}.")
    if column.is_text or column.inside or column.meaning == "decimal" or not _is_written(column, type):
        kind = column.meaning or name_of(column.type)
        raise InvalidValue(
            f"{path} is of type {type}, which is not written as {kind}", "convert it with CAST in a select"
        )
    return None


def _is_written(column: Column, type: pa.DataType) -> bool:
    kinds = {
        "boolean": pa.types.is_boolean(type),
        "int": pa.types.is_signed_integer(type) or type == column.field.type,
        "long": pa.types.is_signed_integer(type) or type == column.field.type,
        "float": pa.types.is_integer(type) or pa.types.is_floating(type),
        "double": pa.types.is_integer(type) or pa.types.is_floating(type),
        "string": type in (pa.string(), pa.large_string()),
        "bytes": type in (pa.string(), pa.binary()),
        "enum": type == pa.string(),
    }
    return bool(kinds.get(name_of(column.type), False))


def _compiled(schema: Schema, layout: Sequence[Column]) -> Program:
    lines = list(_instructions(schema, layout, 0))
    code, slot, argument, target = np.array(lines, np.int64).reshape(-1, 4).T.copy()
    return Program(code, slot, argument, target, np.zeros(1, np.int64))


def _instructions(schema: Schema, layout: Sequence[Column], place: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the instructions that write these columns; the first has that place."""
    for column in layout:
        inside = list(_instructions(schema, column.inside, place + 1))
        value = inside if column.inside else [(_NUMBERS.get(name_of(column.type), 0), column.slot, 0, 0)]
        after = place + 1 + len(value)
        union = schema.resolved(column.given)
        if column.nullable and isinstance(union, list):
            yield writing.OPTIONAL, column.slot, union.index("null"), after
        else:
            yield writing.REQUIRED, column.slot, 0, 0
        yield from value
        place = after


class _Filled:
    """Fills the slots of columns, collects the bytes of those that have some, and notes which rows do not fit."""

    def __init__(self, code: Array) -> None:
        self._code = code
        self._parts: list[Array] = [np.zeros(1, np.uint8)]
        self._size = 1

    def data(self) -> Array:
        """Return the bytes to which spans refer."""
        return np.concatenate(self._parts)

    def fill(self, given: Slots, column: Column, values: pa.Array) -> None:
        """Fill the column's slot, and those of what is inside."""
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        given.length[column.slot] = np.where(valid, 0, -1)
        kind = name_of(column.type)
        if column.inside:
            fields: Mapping[str, pa.Array] = dict(zip(values.type.names, values.flatten(), strict=True))
            for each in column.inside:
                if each.field.name in fields:
                    self.fill(given, each, fields[each.field.name])
        elif kind in ("string", "bytes"):
            if column.meaning == "uuid":
                values, wrong = uuids_of(values.cast(pa.binary()))
                self._code[wrong & (self._code == 0)] = 1 + column.slot
            data, start, length = binary_parts(values)
            given.number[column.slot], given.length[column.slot] = start + self._size, length
            self._parts.append(data)
            self._size += len(data)
        elif kind in ("float", "double"):
            given.floats[column.slot] = _zeroed(values.cast(pa.float64(), safe=False))  # the nearest one
        elif kind == "enum":
            assert isinstance(column.type, Mapping)
            places = pc.index_in(values, pa.array(column.type["symbols"], pa.string()))
            given.number[column.slot] = _zeroed(places.cast(pa.int64()).fill_null(_NO_SYMBOL))
        else:
            given.number[column.slot] = _zeroed(_as_integers(values))


def _as_integers(values: pa.Array) -> pa.Array:
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        values = values.cast(pa.int32())
    return values.cast(pa.int64())


def _zeroed(values: pa.Array) -> Array:
    numbers: Array = values.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers
