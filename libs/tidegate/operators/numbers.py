"""Numbers and other parts of JSON values, for aggregates. May import: the standard library, numpy, orjson, contracts.

A whole number that fits into 64 bits is kept exactly; every other one is a double. A null value has no number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH, Records

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
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
NULL_VALUE, NO_JSON, NO_OBJECT, NO_FIELD, NO_NUMBER, VALUE_NO_NUMBER = range(1, 7)
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
    if fields:
        for row, (document, code) in enumerate(_documents(records)):
            if code := code or _read_row(document, row, fields, read):
                read.code[row] = code
    return read


def missing_parts(records: Records, fields: tuple[str, ...]) -> Array:
    """A code per record: 0, or 1 + the index of the reason why it lacks one of those fields."""
    codes = np.zeros(len(records), np.int8)
    if fields:
        for row, (document, code) in enumerate(_documents(records)):
            if code := code or _missing_part(document, fields):
                codes[row] = code + PART
    return codes


def _missing_part(document: object, fields: tuple[str, ...]) -> int:
    return next((code for _, code in (_field(document, field) for field in fields) if code), 0)


def _documents(records: Records) -> Iterator[tuple[Any, int]]:
    """Each value as JSON, and a code: 0, or why it is none."""
    content = records.data.data
    for start, length in zip(records.value_start.tolist(), records.value_length.tolist(), strict=True):
        if length == NULL_LENGTH:
            yield None, NULL_VALUE
            continue
        try:
            yield orjson.loads(content[start : start + length]), 0
        except orjson.JSONDecodeError:
            yield None, NO_JSON


def _read_row(document: Any, row: int, fields: tuple[str | None, ...], read: Read) -> int:
    for at, field in enumerate(fields):
        number, code = (document, 0) if field is None else _field(document, field)
        if code == 0 and not _is_number(number):
            code = VALUE_NO_NUMBER if field is None else NO_NUMBER
        if code:
            return code
        _keep(read, at, row, number)
    return 0


def _field(document: object, field: str) -> tuple[Any, int]:
    if not isinstance(document, dict):
        return None, NO_OBJECT
    return (document[field], 0) if field in document else (None, NO_FIELD)


def _is_number(number: object) -> bool:
    kind = type(number)
    return kind is int or (kind is float and math.isfinite(number))  # type: ignore[arg-type]


def _keep(read: Read, at: int, row: int, number: float) -> None:
    if type(number) is int and _SMALLEST <= number <= _LARGEST:
        read.whole[at, row] = number
    else:
        read.double[at, row] = number
        read.is_double[at, row] = True
