"""Locates top-level fields in JSON values, for timestamps, numbers and other parts that operators read.

`kernels.json_text` decides which bytes are JSON, and down to which depth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH, Records
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.json_text import DEPTH, find_member, is_json

FOUND, NULL_VALUE, NO_JSON, NO_OBJECT, NO_FIELD = range(5)
"""Codes: FOUND, or why a value does not have the field."""

_NO_NAME = np.zeros(0, np.uint8)
_SPACE, _OBJECT, _MINUS, _ZERO = (ord(sign) for sign in " {-0")
_SMALLEST = -(2**63)
_SMALLEST_TENTH = -922337203685477580


class Fields(NamedTuple):
    """The JSON text of a field, unparsed: per value `data[start : start + length]`, and a code (FOUND: it is there)."""

    data: Array
    start: Array
    length: Array
    code: Array

    def text(self, row: int) -> bytes:
        """Return the field's JSON text in one row."""
        return bytes(self.data[self.start[row] : self.start[row] + self.length[row]])


class Integers(NamedTuple):
    """Per text: whether it is a number, whether it is written as an integer that fits into int64, and that integer."""

    is_number: Array
    is_integer: Array
    whole: Array


def fields_of(records: Records, field: str | None) -> Fields:
    """Locate the field in the value of each record; None: the value itself."""
    return locate(records.data, records.value_start, records.value_length, field)


def locate(data: Array, start: Array, length: Array, field: str | None) -> Fields:
    """Locate the field in each value `data[start : start + length]` (length -1: null); None: the value itself."""
    rows = len(start)
    found = Fields(data, np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int8))
    name = _NO_NAME if field is None else np.frombuffer(field.encode("utf-8", "surrogatepass"), np.uint8)
    _locate(data, start, length, name, field is None, np.empty(DEPTH, np.uint8), found)
    return found


@compiled_in_place
def _locate(
    data: Array, starts: Array, lengths: Array, name: Array, whole_value: bool, open_at: Array, found: Fields
) -> None:
    for row in range(len(starts)):
        start, length = wide(starts[row]), wide(lengths[row])
        if length == NULL_LENGTH:
            found.code[row] = NULL_VALUE
            continue
        if whole_value:
            whole = is_json(data, start, length, open_at)
            at, end = _trimmed(data, start, start + length)
        else:
            whole, at, end = find_member(data, start, length, name, open_at)
        if not whole:
            found.code[row] = NO_JSON
        elif at < 0:
            first, _ = _trimmed(data, start, start + length)
            found.code[row] = NO_FIELD if data[first] == _OBJECT else NO_OBJECT
        else:
            found.start[row] = at
            found.length[row] = end - at


@inlined
def _trimmed(data: Array, start: int, end: int) -> Any:
    """Return the start and end of the text without the white space around it."""
    while start < end and data[start] <= _SPACE:
        start += 1
    while start < end and data[end - 1] <= _SPACE:
        end -= 1
    return start, end


def integers_of(fields: Fields) -> Integers:
    """Return which of the texts are numbers, and the integers among them; a missing field is not a number."""
    rows = len(fields.start)
    found = Integers(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.zeros(rows, np.int64))
    _read_integers(fields, found)
    return found


@compiled_in_place
def _read_integers(fields: Fields, found: Integers) -> None:
    for row in range(len(fields.start)):
        if fields.code[row] == FOUND:
            at = fields.start[row]
            first = fields.data[at]
            found.is_number[row] = first == _MINUS or _ZERO <= first < _ZERO + 10
            if found.is_number[row]:
                found.is_integer[row], found.whole[row] = _whole(fields.data, at, at + fields.length[row])


@inlined
def _whole(data: Array, at: int, end: int) -> Any:
    """Return whether the JSON number is an int64 written without fraction and exponent, and its value (else 0)."""
    negative = data[at] == _MINUS
    largest = _SMALLEST if negative else _SMALLEST + 1
    number = wide(0)  # summed up as a negative number: int64 has one more of these than positive ones
    for place in range(at + negative, end):
        digit = wide(data[place]) - _ZERO
        if digit < 0 or digit > 9 or number < _SMALLEST_TENTH or number * 10 < largest + digit:
            return False, wide(0)
        number = number * 10 - digit
    return True, number if negative else -number
