"""Reads numbers of JSON values for aggregates, and checks that other parts are there.

A number that is written without fraction and exponent and fits into int64 is kept exactly. Any other number becomes the
nearest double; if that is infinite, there is no number. A null value has no number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.operators.json_values import json_fields
from tidegate.operators.json_values.json_fields import FOUND, NO_JSON, Fields, Path

REASONS = (
    "no number: null value",
    "no number: value is not JSON",
    "no number: value is not a JSON object",
    "no number: field is missing",
    "no number: field is not a number",
    "no number: value is not a number",
    "no value: null value",
    "no value: value is not JSON",
    "no value: value is not a JSON object",
    "no value: field is missing",
)
NO_NUMBER, VALUE_NO_NUMBER = 5, 6
"""Further codes, after those of `json_fields`: the field is not a number, or the value itself is not."""

PART_OFFSET = 6
"""Added to the codes of `json_fields` for a missing part that need not be a number (`no value: ...` in REASONS)."""


class ReadNumbers(NamedTuple):
    """Numbers, [field, row]: `double` where `is_double`, otherwise `whole`; and a code per row.

    The code is 0, or 1 + the index in REASONS of the reason why a number is missing; then all numbers of the row are 0.
    """

    whole: Array
    double: Array
    is_double: Array
    code: Array


def read_numbers(records: Records, fields: tuple[Path, ...]) -> ReadNumbers:
    """Read the fields' numbers in each record. The code is that of the first missing one."""
    shape = len(fields), len(records)
    read = ReadNumbers(
        np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape[1], np.int8)
    )
    for at, (field, found) in enumerate(zip(fields, json_fields.fields_of(records, fields), strict=True)):
        codes = _read_field(field, found, read.whole[at], read.double[at], read.is_double[at])
        np.copyto(read.code, codes, where=read.code == FOUND)
    for numbers in (read.whole, read.double, read.is_double):
        numbers[:, read.code != FOUND] = 0
    return read


def _read_field(field: Path, found: Fields, whole: Array, double: Array, is_double: Array) -> Array:
    """Write the field's numbers into the three arrays, and return a code per record."""
    numbers = json_fields.numbers_of(found)
    whole[:], double[:], is_double[:] = numbers.whole, numbers.double, numbers.is_double
    no_number = NO_NUMBER if field else VALUE_NO_NUMBER
    is_none = ~numbers.is_number | np.isinf(numbers.double)
    return np.where((found.code == FOUND) & is_none, no_number, found.code)


def missing_parts(records: Records, fields: tuple[Path, ...]) -> Array:
    """Return a code per record: 0, or 1 + the index in REASONS of why the first missing one of the fields is missing.

    The value itself must be JSON and may be null.
    """
    codes = np.zeros(len(records), np.int8)
    for field, found in zip(fields, json_fields.fields_of(records, fields), strict=True):
        missing = found.code
        lacks = (missing != FOUND) if field else (missing == NO_JSON)
        np.copyto(codes, missing + PART_OFFSET, where=lacks & (codes == 0))
    return codes
