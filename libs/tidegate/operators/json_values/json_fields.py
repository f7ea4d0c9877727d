"""Locates fields in JSON values by the names that lead to them, for timestamps, numbers and other parts.

`kernels.codecs.json_text` decides which bytes are JSON, and down to which depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.codecs import json_spans
from tidegate.kernels.codecs.json_numbers import (
    POWERS,
    SLOW,
    begins_number,
    nearest_doubles,
    read_floor,
    read_short_decimal,
    read_whole,
)
from tidegate.kernels.codecs.json_spans import MISSING, Spans, Tree
from tidegate.kernels.compiled import compiled_in_place

FOUND, NULL_VALUE, NO_JSON, NO_OBJECT, NO_FIELD = range(5)
"""Codes: FOUND, or why a value does not have the field; all but the last are those of `json_spans`."""

_OF_VALUE = np.array([FOUND, NULL_VALUE, NO_JSON, FOUND], np.int8)
"""The codes of values as such, by the codes of `json_spans`."""


class Fields(NamedTuple):
    """The JSON text of a field, unparsed: per value `data[start : start + length]`, and a code (FOUND: it is there)."""

    data: Array
    start: Array
    length: Array
    code: Array

    def text(self, row: int) -> bytes:
        """Return the field's JSON text in one row."""
        return bytes(self.data[self.start[row] : self.start[row] + self.length[row]])


class Numbers(NamedTuple):
    """Per text: whether it is a number; `whole`, if it is written as an integer that fits into int64; or a `double`.

    `is_double`: which of the two it is. The double is the nearest one, infinite if the number is too large.
    """

    is_number: Array
    is_double: Array
    whole: Array
    double: Array


class Floors(NamedTuple):
    """Per text: whether it is a number, whether its floor was read, and that floor."""

    is_number: Array
    is_floor: Array
    floor: Array


Path: TypeAlias = tuple[str, ...]
"""The names that lead to a field, from the outermost object on; none lead to the value itself."""


def fields_of(records: Records, fields: Sequence[Path]) -> list[Fields]:
    """Locate the fields in the value of each record, in one pass."""
    return locate(records.data, records.value_start, records.value_length, fields)


def locate(data: Array, start: Array, length: Array, fields: Sequence[Path]) -> list[Fields]:
    """Locate the fields in each value `data[start : start + length]` (length -1: null)."""
    if not fields:
        return []
    tree: dict[str, Any] = {}
    for field in fields:
        inside = tree
        for name in field:
            inside = inside.setdefault(name, {})
    spans = json_spans.locate(data, start, length, json_spans.names_of(tree))
    places = {path: place for place, path in enumerate(_paths(tree, ()))}
    return [_field(data, spans, places[field]) for field in fields]


def _paths(tree: Tree, path: Path) -> Iterator[Path]:
    """Yield the path of each name in the order of the spans."""
    yield path
    for name, inside in tree.items():
        yield from _paths(inside, (*path, name))


def _field(data: Array, spans: Spans, place: int) -> Fields:
    start, length = spans.start[place], spans.length[place]
    lacks = NO_FIELD if place else FOUND  # the value itself need not be an object
    code = np.where(length == MISSING, lacks, FOUND)
    code = np.where(spans.code == json_spans.FOUND, code, spans.code if place else _OF_VALUE[spans.code])
    return Fields(data, start, np.maximum(length, 0), code.astype(np.int8))


def numbers_of(fields: Fields) -> Numbers:
    """Return which of the texts are numbers, and those numbers; a missing field is not a number."""
    rows = len(fields.start)
    found = Numbers(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows))
    is_long = np.zeros(rows, np.bool_)
    _read_numbers(fields, POWERS, found, is_long)
    if len(long := np.flatnonzero(is_long)):
        found.double[long] = nearest_doubles(fields.data, fields.start[long], fields.length[long])
    return found


@compiled_in_place
def _read_numbers(fields: Fields, powers: Array, found: Numbers, is_long: Array) -> None:
    for row in range(len(fields.start)):
        at = fields.start[row]
        found.is_number[row] = fields.code[row] == FOUND and begins_number(fields.data[at])
        if found.is_number[row]:
            end = at + fields.length[row]
            is_whole, found.whole[row] = read_whole(fields.data, at, end)
            if not is_whole:
                found.is_double[row] = True
                verdict, found.double[row] = read_short_decimal(fields.data, at, end, powers)
                is_long[row] = verdict == SLOW


def floors_of(fields: Fields, shift: int, *, longest: int) -> Floors:
    """Return which of the texts are numbers, and floor(number * 10**shift) of them; a missing field is not a number.

    The floor is exact. It is not read for a number with an exponent or of more than `longest` characters, or if it does
    not fit into int64.
    """
    rows = len(fields.start)
    found = Floors(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.zeros(rows, np.int64))
    _read_floors(fields, shift, longest, found)
    return found


@compiled_in_place
def _read_floors(fields: Fields, shift: int, longest: int, found: Floors) -> None:
    for row in range(len(fields.start)):
        found.is_number[row] = fields.code[row] == FOUND and begins_number(fields.data[fields.start[row]])
        if found.is_number[row] and fields.length[row] <= longest:
            at = fields.start[row]
            found.is_floor[row], found.floor[row] = read_floor(fields.data, at, at + fields.length[row], shift)
