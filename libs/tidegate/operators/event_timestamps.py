"""Event timestamps out of JSON values.

A null value has no field, so it is rejected too: the record's own timestamp may belong to another clock (the wall clock
of a backfill, say), and would push stream time past everything that is held.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.contracts.config import TimestampField
from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Int64s, Records
from tidegate.operators import json_fields

REASONS = (
    "no timestamp: null value",
    "no timestamp: value is not a JSON object",
    "no timestamp: field is missing",
    "no timestamp: field is not a number",
    "no timestamp: out of range",
    "no timestamp: null",
)
NULL_VALUE, NO_OBJECT, NO_FIELD, NO_NUMBER, OUT_OF_RANGE, NULL_TIMESTAMP = range(1, 7)

_CODES = np.array([0, NULL_VALUE, NO_OBJECT, NO_OBJECT, NO_FIELD])
"""What the codes of `json_fields` are called here."""

_EXPONENT = re.compile(b"[eE]")
_EXACT_DIGITS = 40
"""A number with so many, and without an exponent, is read exactly; a longer one as a double."""

_MS_PER_UNIT = {"ms": Fraction(1), "s": Fraction(1000), "us": Fraction(1, 1000)}


def event_timestamps(records: Records, field: TimestampField | None) -> tuple[Int64s, npt.NDArray[np.int8]]:
    """The event timestamp of each record in ms, and a code: 0, or 1 + the index of the reason why there is none."""
    if field is None:
        return records.timestamp, (NULL_TIMESTAMP * (records.timestamp == NO_TIMESTAMP)).astype(np.int8)
    found = json_fields.fields_of(records, field.field)
    numbers = json_fields.wholes_of(found)
    codes = np.where(found.code == json_fields.FOUND, np.where(numbers.is_number, 0, NO_NUMBER), _CODES[found.code])
    timestamps = records.timestamp.copy()
    for row in np.flatnonzero(codes == 0).tolist():
        number = int(numbers.whole[row]) if numbers.is_whole[row] else _number(found.text(row))
        timestamp, codes[row] = _milliseconds(number, field.unit)
        if codes[row] == 0:
            timestamps[row] = timestamp
    return timestamps, codes.astype(np.int8)


def _number(text: bytes) -> Fraction:
    """Return what the JSON number says, or one that is out of range where no double is as large."""
    if len(text) <= _EXACT_DIGITS and not _EXPONENT.search(text):
        return Fraction(text.decode())
    double = float(text)
    return Fraction(repr(double)) if math.isfinite(double) else Fraction(math.copysign(10**6 * MAX_TIME, double))


def _milliseconds(number: int | Fraction, unit: str) -> tuple[int, int]:
    """Whole milliseconds: of the parts of one, the earlier."""
    milliseconds = math.floor(number * _MS_PER_UNIT[unit])
    if abs(milliseconds) > MAX_TIME:
        return 0, OUT_OF_RANGE
    return milliseconds, 0
