"""Numbers and other parts of JSON values, for aggregates.

A whole number that fits into 64 bits, without fraction and exponent, is kept exactly; every other one is the nearest
double, and none where that is infinite. A null value has no number.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.operators import json_fields
from tidegate.operators.json_fields import FOUND, NO_JSON

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
"""Codes behind those of `json_fields`."""

PART = 6
"""Added to the first four codes where a part is missing that need not be a number."""


class Read(NamedTuple):
    """Numbers of records, [field, row], and a code per row: 0, or 1 + the index of the reason why one is missing."""

    whole: Array
    double: Array
    is_double: Array
    code: Array


def read_numbers(records: Records, fields: tuple[str | None, ...]) -> Read:
    """The numbers of those fields (None: of the value itself) of each record."""
    shape = len(fields), len(records)
    read = Read(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(shape[1], np.int8))
    for at, field in enumerate(fields):
        codes = _read_field(records, field, read.whole[at], read.double[at], read.is_double[at])
        np.copyto(read.code, codes, where=read.code == FOUND)
    for numbers in (read.whole, read.double, read.is_double):
        numbers[:, read.code != FOUND] = 0
    return read


def _read_field(records: Records, field: str | None, whole: Array, double: Array, is_double: Array) -> Array:
    """Return a code per record, after writing the field's numbers."""
    found = json_fields.fields_of(records, field)
    numbers = json_fields.wholes_of(found)
    whole[:] = numbers.whole
    no_number = VALUE_NO_NUMBER if field is None else NO_NUMBER
    codes = np.where((found.code == FOUND) & ~numbers.is_number, no_number, found.code)
    for row in np.flatnonzero(numbers.is_number & ~numbers.is_whole).tolist():
        double[row] = float(found.text(row))
        is_double[row] = True
        if math.isinf(double[row]):
            codes[row] = no_number
    return codes


def missing_parts(records: Records, fields: tuple[str | None, ...]) -> Array:
    """A code per record: 0, or 1 + the index of the reason why it lacks one of those fields (None: the value itself,
    which may be null)."""
    codes = np.zeros(len(records), np.int8)
    for field in fields:
        missing = json_fields.fields_of(records, field).code
        lacks = (missing == NO_JSON) if field is None else (missing != FOUND)
        np.copyto(codes, missing + PART, where=lacks & (codes == 0))
    return codes
