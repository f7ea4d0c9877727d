"""Event timestamps out of JSON values. May import: the standard library, numpy, orjson, contracts.

A null value has no field, so it is rejected too: the record's own timestamp may belong to another clock (the wall
clock of a backfill, say), and would push stream time past everything that is held.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import orjson

from tidegate.contracts.config import TimestampField
from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import NULL_LENGTH, Int64s, Records

REASONS = (
    "no timestamp: null value",
    "no timestamp: value is not a JSON object",
    "no timestamp: field is missing",
    "no timestamp: field is not a number",
    "no timestamp: out of range",
    "no timestamp: null",
)
NULL_VALUE, NO_OBJECT, NO_FIELD, NO_NUMBER, OUT_OF_RANGE, NULL_TIMESTAMP = range(1, 7)

_MS_PER_UNIT = {"ms": Fraction(1), "s": Fraction(1000), "us": Fraction(1, 1000)}


def event_timestamps(records: Records, field: TimestampField | None) -> tuple[Int64s, npt.NDArray[np.int8]]:
    """The event timestamp of each record in ms, and a code: 0, or 1 + the index of the reason why there is none."""
    if field is None:
        return records.timestamp, (NULL_TIMESTAMP * (records.timestamp == NO_TIMESTAMP)).astype(np.int8)
    codes = np.zeros(len(records), np.int8)
    timestamps = records.timestamp.copy()
    for row in range(len(records)):
        timestamp, codes[row] = _read(_value(records, row), field)
        if codes[row] == 0:
            timestamps[row] = timestamp
    return timestamps, codes


def _value(records: Records, row: int) -> bytes | None:
    start, length = records.value_start[row], records.value_length[row]
    return None if length == NULL_LENGTH else records.data[start : start + length].tobytes()


def _read(value: bytes | None, field: TimestampField) -> tuple[int, int]:
    if value is None:
        return 0, NULL_VALUE
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        return 0, NO_OBJECT
    if not isinstance(document, dict):
        return 0, NO_OBJECT
    if field.field not in document:
        return 0, NO_FIELD
    return _milliseconds(document[field.field], field.unit)


def _milliseconds(number: object, unit: str) -> tuple[int, int]:
    """Whole milliseconds: of the parts of one, the earlier."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 0, NO_NUMBER
    exact = Fraction(repr(number)) if isinstance(number, float) else Fraction(number)
    milliseconds = math.floor(exact * _MS_PER_UNIT[unit])
    if abs(milliseconds) > MAX_TIME:
        return 0, OUT_OF_RANGE
    return milliseconds, 0
