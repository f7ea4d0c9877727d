"""Reads JSON objects into typed Arrow columns.

A column's type says what the field must be: `bool`, an integer or a float of any width, `string`, a `struct` of such
fields, or `large_string` for the JSON text of any value, arrays among them. A field that is missing or `null` is null,
which the schema must allow. A number for an integer column is written without fraction and exponent and fits; a number
for a float column becomes the nearest one, and must not become infinite.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs import json_spans
from tidegate.kernels.codecs.json_numbers import GOOD, POWERS, SLOW, WRONG, read_short_decimal, read_whole
from tidegate.kernels.codecs.json_spans import FOUND, MISSING, Names, Spans, Tree
from tidegate.kernels.codecs.json_text import (
    BACKSLASH,
    OBJECT,
    QUOTE,
    unescaped,
    utf8_byte,
    utf8_size,
)
from tidegate.kernels.codecs.port import CODE, Decoded
from tidegate.kernels.columns import assemble, binary_column, in_one
from tidegate.kernels.compiled import compiled_in_place, wide

_NULL = ord("n")
_TRUE = ord("t")
_FALSE = ord("f")
_SURROGATES = 0xD800, 0xDFFF


class JsonDecoder:
    """Reads the fields of a schema. `reasons`: why a value may be refused."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names: Names = json_spans.names_of(_tree(list(schema)))
        self.reasons: tuple[str, ...] = (
            "value: null",
            "value: not JSON",
            "value: not a JSON object",
            *(reason for path, field in _fields(list(schema), "") for reason in _reasons(path, field)),
        )

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        data = data if len(data) else np.zeros(1, np.uint8)  # the byte at a missing field's start is looked at
        spans = json_spans.locate(data, start, length, self._names)
        code = spans.code.astype(CODE)
        reading = _Reading(data, spans, code)
        columns = [reading.column(field, None) for field in self.schema]
        if code.any():
            columns = [pc.if_else(pa.array(code == FOUND), column, None) for column in columns]
        return Decoded(columns, code, self.reasons)


def _tree(fields: list[pa.Field]) -> Tree:
    return {field.name: _tree(_inside(field)) for field in fields}


def _inside(field: pa.Field) -> list[pa.Field]:
    return [field.type.field(place) for place in range(field.type.num_fields)] if pa.types.is_struct(field.type) else []


def _fields(fields: list[pa.Field], before: str) -> Iterator[tuple[str, pa.Field]]:
    """Yield all fields in the order of the spans, each with its path."""
    for field in fields:
        yield before + field.name, field
        yield from _fields(_inside(field), f"{before}{field.name}.")


def _reasons(path: str, field: pa.Field) -> tuple[str, str]:
    kind = "JSON object" if pa.types.is_struct(field.type) else field.type
    return f"value: {path} is no {kind}", f"value: {path} is missing"


class _Reading:
    """One pass over the schema, in the order of the spans. `code` gets the first reason of each row."""

    def __init__(self, data: Array, spans: Spans, code: Array) -> None:
        self._data, self._spans, self._code, self._place = data, spans, code, 0

    def column(self, field: pa.Field, around: Array | None) -> pa.Array:
        """Return the field's column. `around`: the rows that have the struct it is in; None: all rows."""
        self._place += 1
        place = self._place
        start, length = self._spans.start[place], self._spans.length[place]
        there = (length != MISSING) & (self._data[start] != _NULL)
        wrong = 2 * place + 2  # 1 + its place among the reasons; the next one is that of a missing value
        if not field.nullable:
            lacking = ~there if around is None else ~there & around
            self._refuse(lacking, wrong + 1)
        if pa.types.is_struct(field.type):
            return self._struct(field, there, wrong)
        lengths = np.where(there, length, MISSING)
        values, verdict = _READERS[_family(field.type)](self._data, start, lengths, field.type)
        self._refuse(there & (verdict == WRONG), wrong)
        return values

    def _struct(self, field: pa.Field, there: Array, wrong: int) -> pa.Array:
        objects = there & (self._data[self._spans.start[self._place]] == OBJECT)
        self._refuse(there & ~objects, wrong)
        inside = _inside(field)
        arrays = [self.column(each, objects) for each in inside]
        return pa.StructArray.from_arrays(arrays, fields=inside, mask=pa.array(~objects))

    def _refuse(self, rows: Array, code: int) -> None:
        self._code[rows & (self._code == FOUND)] = code


def _family(type: pa.DataType) -> str:
    """Return how values of the type are read. Raise TypeError for a type that JSON values are not read into."""
    families = {"bool": pa.types.is_boolean, "integer": pa.types.is_signed_integer, "float": pa.types.is_floating}
    for family, belongs in {**families, "text": pa.types.is_string, "json": pa.types.is_large_string}.items():
        if belongs(type):
            return family
    raise TypeError(f"JSON values are not read into {type}")


def _bools(data: Array, start: Array, length: Array, type: pa.DataType) -> tuple[pa.Array, Array]:
    first = data[start]
    verdict = np.where((first == _TRUE) | (first == _FALSE), GOOD, WRONG)
    return pa.array(first == _TRUE, type, mask=length == MISSING), verdict


def _integers(data: Array, start: Array, length: Array, type: pa.DataType) -> tuple[pa.Array, Array]:
    values, verdict = np.zeros(len(start), np.int64), np.zeros(len(start), np.int8)
    limits = np.iinfo(type.to_pandas_dtype())
    _read_integers(data, start, length, limits.min, limits.max, values, verdict)
    return pa.array(values, mask=length == MISSING).cast(type), verdict


def _floats(data: Array, start: Array, length: Array, type: pa.DataType) -> tuple[pa.Array, Array]:
    values, verdict = np.zeros(len(start)), np.zeros(len(start), np.int8)
    _read_floats(data, start, length, POWERS, values, verdict)
    for row in np.flatnonzero(verdict == SLOW).tolist():
        values[row] = float(bytes(data[start[row] : start[row] + length[row]]))
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        narrow = values.astype(type.to_pandas_dtype())
    verdict[~np.isfinite(narrow)] = WRONG
    return pa.array(narrow, type, mask=length == MISSING), verdict


def _texts(data: Array, start: Array, length: Array, type: pa.DataType) -> tuple[pa.Array, Array]:
    sizes, verdict = np.empty(len(start), np.int64), np.zeros(len(start), np.int8)
    _measure_texts(data, start, length, sizes, verdict)

    def write(rows: slice, content: Array) -> None:
        _write_texts(data, start[rows], sizes[rows], content)

    return _as_text(in_one(assemble(sizes, write))), verdict


def _json(data: Array, start: Array, length: Array, type: pa.DataType) -> tuple[pa.Array, Array]:
    texts = _as_text(in_one(binary_column(data, data, start, length)))
    return texts.cast(type), np.zeros(len(start), np.int8)


def _as_text(values: pa.Array) -> pa.Array:
    """Return byte strings of JSON values as text, without another look at their bytes: JSON is UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), values.null_count, values.offset)


_READERS = {"bool": _bools, "integer": _integers, "float": _floats, "text": _texts, "json": _json}


@compiled_in_place
def _read_integers(
    data: Array, starts: Array, lengths: Array, least: int, most: int, values: Array, verdict: Array
) -> None:
    for row in range(len(starts)):
        if lengths[row] != MISSING:
            good, value = read_whole(data, starts[row], starts[row] + lengths[row])
            verdict[row] = GOOD if good and least <= value <= most else WRONG
            values[row] = value if verdict[row] == GOOD else 0


@compiled_in_place
def _read_floats(data: Array, starts: Array, lengths: Array, powers: Array, values: Array, verdict: Array) -> None:
    for row in range(len(starts)):
        if lengths[row] != MISSING:
            verdict[row], values[row] = read_short_decimal(data, starts[row], starts[row] + lengths[row], powers)


@compiled_in_place
def _measure_texts(data: Array, starts: Array, lengths: Array, sizes: Array, verdict: Array) -> None:
    """Write how many bytes each text has in UTF-8; MISSING for none, and for one with half a surrogate pair."""
    for row in range(len(starts)):
        sizes[row] = MISSING
        if lengths[row] == MISSING:
            continue
        if data[starts[row]] != QUOTE:
            verdict[row] = WRONG
            continue
        at, size = wide(starts[row]) + 1, wide(0)
        while data[at] != QUOTE and verdict[row] == GOOD:
            if data[at] == BACKSLASH:
                character, at = unescaped(data, at + 1)
                size += utf8_size(character)
                if _SURROGATES[0] <= character <= _SURROGATES[1]:
                    verdict[row] = WRONG
            else:
                at += 1
                size += 1
        if verdict[row] == GOOD:
            sizes[row] = size


@compiled_in_place
def _write_texts(data: Array, starts: Array, sizes: Array, content: Array) -> None:
    out = wide(0)
    for row in range(len(starts)):
        if sizes[row] != MISSING:
            at = wide(starts[row]) + 1
            while data[at] != QUOTE:
                if data[at] == BACKSLASH:
                    character, at = unescaped(data, at + 1)
                    size = utf8_size(character)
                    for byte in range(size):
                        content[out + byte] = utf8_byte(character, size, byte)
                    out += size
                else:
                    content[out] = data[at]
                    at += 1
                    out += 1
