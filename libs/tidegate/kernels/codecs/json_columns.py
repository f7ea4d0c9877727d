"""Reads JSON objects into typed Arrow columns.

A column's type says what the field must be: `bool`, an integer or a float of any width, `string`, a `struct` of such
fields, `large_string` for the JSON text of any value, arrays among them, or `binary` for padded base64. A field that is
missing or `null` is null, which the schema must allow. A number for an integer column is written without fraction and
exponent and fits; a number for a float column becomes the nearest one, and must not become infinite. A float may
also be the text "NaN", "Infinity" or "-Infinity", as Spark writes it. Decimals are numbers, dates and times text, as
`exact_texts` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.codecs import json_spans
from tidegate.kernels.codecs.exact_texts import is_exact, parsed
from tidegate.kernels.codecs.json_numbers import (
    POWERS,
    SLOW,
    WRONG,
    nearest_doubles,
    read_not_finite,
    read_short_decimal,
    read_whole,
)
from tidegate.kernels.codecs.json_spans import (
    FOUND,
    MISSING,
    NULL_VALUE,
    Names,
    Path,
    Shape,
    Tree,
    field_end,
    field_start,
    find,
)
from tidegate.kernels.codecs.json_text import OBJECT, QUOTE, escape_at, read_base64, unescaped
from tidegate.kernels.codecs.port import CODE, Decoded
from tidegate.kernels.codecs.slots import Slots, slots
from tidegate.kernels.codecs.utf8 import utf8_byte, utf8_size
from tidegate.kernels.columns import as_text, binary_column, in_one
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import copy_bytes

_NULL, _TRUE, _FALSE = b"ntf"
_SURROGATES = 0xD800, 0xDFFF

_BOOL, _WHOLE, _FLOAT, _TEXT, _JSON, _STRUCT, _BYTES = range(7)
"""How a field is read."""
_IS_OF_KIND = {
    _BOOL: pa.types.is_boolean,
    _WHOLE: pa.types.is_signed_integer,
    _FLOAT: pa.types.is_floating,
    _TEXT: lambda type: pa.types.is_string(type) or pa.types.is_date32(type) or pa.types.is_timestamp(type),
    _JSON: lambda type: pa.types.is_large_string(type) or pa.types.is_decimal128(type),
    _STRUCT: pa.types.is_struct,
    _BYTES: pa.types.is_binary,
}
_SPANS = pa.string(), pa.large_string(), pa.binary()
"""Types of which a slot has a place in the value, or in what was written for it."""


class _Wanted(NamedTuple):
    """How the field at each place is read, and whether it must be there where the struct is in which it is.

    `least`, `most`: the bounds of whole numbers. `around`: the place of the struct; 0: the value itself.
    """

    kind: Array
    least: Array
    most: Array
    required: Array
    around: Array


class JsonDecoder:
    """Reads the fields of a schema. `reasons`: why a value may be refused; those of an earlier field come first."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._names: Names = json_spans.names_of(_tree(list(schema)))
        fields = [*_fields(list(schema), "", 0)]
        self._wanted = _wanted([(field, around) for _, field, around in fields])
        self.reasons: tuple[str, ...] = (
            "value: null",
            "value: not JSON",
            "value: not a JSON object",
            *(reason for path, field, _ in fields for reason in _reasons(path, field)),
        )

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        found, code = slots(len(self._wanted.kind), len(start)), np.zeros(len(start), CODE)
        texts = np.empty(int(np.maximum(length, 0).sum()), np.uint8)
        path, shape = json_spans.scratch_of(self._names)
        _read(data, start, length, self._names, path, shape, self._wanted, POWERS, found, texts, code)
        reading = _Reading(data, texts, found, code)
        reading.read_texts(list(self.schema))
        if code.any():
            found.length[:, code != FOUND] = MISSING
        return Decoded([reading.column(field) for field in self.schema], code, self.reasons)


def _tree(fields: list[pa.Field]) -> Tree:
    return {field.name: _tree(_inside(field)) for field in fields}


def _inside(field: pa.Field) -> list[pa.Field]:
    return [field.type.field(place) for place in range(field.type.num_fields)] if pa.types.is_struct(field.type) else []


def _fields(fields: list[pa.Field], before: str, around: int) -> Iterator[tuple[str, pa.Field, int]]:
    """Yield all fields in the order of their places, each with its path, and with the place of the struct around it."""
    place = around
    for field in fields:
        place += 1
        yield before + field.name, field, around
        inside = [*_fields(_inside(field), f"{before}{field.name}.", place)]
        place += len(inside)
        yield from inside


def _wanted(fields: list[tuple[pa.Field, int]]) -> _Wanted:
    """Return how the fields are read. Raise TypeError for a type that JSON values are not read into."""
    wanted = _Wanted(*(np.zeros(len(fields) + 1, np.int64) for _ in _Wanted._fields))
    for place, (field, around) in enumerate(fields, 1):
        kinds = [kind for kind, is_of_kind in _IS_OF_KIND.items() if is_of_kind(field.type)]
        if not kinds:
            raise TypeError(f"JSON values are not read into {field.type}")
        [wanted.kind[place]] = kinds
        if kinds == [_WHOLE]:
            limits = np.iinfo(field.type.to_pandas_dtype())
            wanted.least[place], wanted.most[place] = limits.min, limits.max
        wanted.required[place], wanted.around[place] = not field.nullable, around
    return wanted


def _reasons(path: str, field: pa.Field) -> tuple[str, str]:
    kind = "JSON object" if pa.types.is_struct(field.type) else field.type
    return f"value: {path} is no {kind}", f"value: {path} is missing"


@inlined
def _wrong(place: int) -> Any:
    """Return the code of a value whose field at that place is wrong; the next one is that of a missing field."""
    return wide(2 * place + 2)


class _Reading:
    """Makes columns of what was read. Fields are visited in the order of their places. `code` gets more reasons."""

    def __init__(self, data: Array, texts: Array, found: Slots, code: Array) -> None:
        self._data, self._texts, self._found, self._code, self._place = data, texts, found, code, 0
        self._parsed: dict[int, pa.Array] = {}

    def read_texts(self, fields: list[pa.Field], place: int = 0) -> int:
        """Read long numbers, decimals, dates and times; refuse what is none, and numbers that are too large.

        Return the place of the last of the fields.
        """
        for field in fields:
            place += 1
            if pa.types.is_floating(field.type):
                self._round(place, field.type)
            elif is_exact(field.type):
                self._parsed[place], wrong = parsed(self._text(place), field.type)
                self._refuse(place, wrong)
            place = self.read_texts(_inside(field), place)
        return place

    def _round(self, place: int, type: pa.DataType) -> None:
        values, start, length = self._found.floats[place], self._found.number[place], self._found.length[place]
        is_long = length > 0
        if is_long.any():
            values[is_long] = nearest_doubles(self._data, start[is_long], length[is_long])
        elif type == pa.float64():
            return  # a short decimal is finite
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(values.astype(type.to_pandas_dtype()))
        self._refuse(place, ~is_finite & (is_long | np.isfinite(values)))

    def _refuse(self, place: int, wrong: Array) -> None:
        """Refuse these rows for the field at the place, unless they are for an earlier one."""
        self._code[wrong & ((self._code == FOUND) | (self._code > _wrong(place)))] = _wrong(place)

    def _text(self, place: int) -> pa.Array:
        return as_text(self._bytes(place))

    def _bytes(self, place: int) -> pa.Array:
        return in_one(binary_column(self._data, self._texts, self._found.number[place], self._found.length[place]))

    def column(self, field: pa.Field) -> pa.Array:
        """Return the column of the next field."""
        self._place += 1
        number, length = self._found.number[self._place], self._found.length[self._place]
        if field.type in _SPANS:
            binary = pa.types.is_binary(field.type)
            return self._bytes(self._place) if binary else self._text(self._place).cast(field.type)
        null = length < 0
        mask = null if null.any() else None
        if is_exact(field.type):
            values = self._parsed[self._place]
            return values if mask is None else pc.if_else(pa.array(mask), pa.scalar(None, field.type), values)
        if pa.types.is_struct(field.type):
            inside = _inside(field)
            arrays = [self.column(each) for each in inside]
            return pa.StructArray.from_arrays(arrays, fields=inside, mask=None if mask is None else pa.array(mask))
        if pa.types.is_floating(field.type):
            return pa.array(self._found.floats[self._place], mask=mask).cast(field.type, safe=False)
        return pa.array(number, mask=mask).cast(field.type)


@compiled_in_place
def _read(
    data: Array,
    starts: Array,
    lengths: Array,
    names: Names,
    path: Path,
    shape: Shape,
    wanted: _Wanted,
    powers: Array,
    found: Slots,
    texts: Array,
    code: Array,
) -> None:
    """Read the fields of each value into the slots of their places, and its code. Texts with escapes go to `texts`."""
    used = wide(0)
    for row in range(len(starts)):
        start, end = wide(starts[row]), wide(starts[row]) + wide(lengths[row])
        code[row] = NULL_VALUE if lengths[row] == NULL_LENGTH else find(data, start, end, names, path, shape)
        if code[row] == FOUND:
            for place in range(1, len(wanted.kind)):
                if shape.first[place] != MISSING and data[field_start(shape, place)] != _NULL:
                    is_good, used = _store(data, row, place, shape, wanted, powers, found, texts, used)
                    reason = 0 if is_good else _wrong(place)
                else:
                    around = wanted.around[place]
                    lacks = wanted.required[place] != 0 and (around == 0 or found.length[around, row] != MISSING)
                    reason = _wrong(place) + 1 if lacks else 0
                if code[row] == FOUND:
                    code[row] = reason


@inlined
def _store(
    data: Array,
    row: int,
    place: int,
    shape: Shape,
    wanted: _Wanted,
    powers: Array,
    found: Slots,
    texts: Array,
    used: int,
) -> Any:
    """Put the field into the slot of its place. Return whether it is of its type, and how much of `texts` is used.

    A long decimal is where it stands in the value, as a text is.
    """
    start, end, kind = wide(field_start(shape, place)), wide(field_end(shape, place)), wanted.kind[place]
    number, length, is_good = start, wide(0), True
    if kind == _TEXT:
        is_good = data[start] == QUOTE
        number, length = start + 1, end - start - 2
        if is_good and escape_at(data, start + 1, end - 1) < end - 1:
            number, length = ~used, _write_text(data, start + 1, end - 1, texts, used)
            is_good = length >= 0
            used += max(length, 0)
    elif kind == _WHOLE:
        is_whole, number = read_whole(data, start, end)
        is_good = is_whole and wanted.least[place] <= number <= wanted.most[place]
    elif kind == _FLOAT:
        verdict, value = read_short_decimal(data, start, end, powers)
        if verdict == WRONG:
            is_good, value = read_not_finite(data, start)
        if verdict == SLOW:
            length = end - start
        else:
            found.floats[place, row] = value
    elif kind == _BOOL:
        is_good, number = data[start] == _TRUE or data[start] == _FALSE, wide(data[start] == _TRUE)
    elif kind == _STRUCT:
        is_good = data[start] == OBJECT
    elif kind == _BYTES:
        number, length = ~used, wide(MISSING)
        if data[start] == QUOTE:
            length = _write_text(data, start + 1, end - 1, texts, used)
            length = read_base64(texts, used, used + length, texts, used) if length >= 0 else length
        is_good = length >= 0
        used += max(length, 0)
    else:
        length = end - start
    if is_good:
        found.length[place, row] = length
        if kind != _FLOAT or length > 0:
            found.number[place, row] = number
    return is_good, used


@inlined
def _write_text(data: Array, at: int, end: int, texts: Array, first: int) -> Any:
    """Write the text without escapes to `texts` from `first` on.

    Return how many bytes it has in UTF-8, or MISSING if it has half a surrogate pair.
    """
    out = first
    while at < end:
        escape = escape_at(data, at, end)
        copy_bytes(data, at, texts, out, escape - at)
        out += escape - at
        at = escape
        if at < end:
            character, at = unescaped(data, at + 1)
            if _SURROGATES[0] <= character <= _SURROGATES[1]:
                return wide(MISSING)
            size = utf8_size(character)
            for byte in range(size):
                texts[out + byte] = utf8_byte(character, size, byte)
            out += size
    return out - first
