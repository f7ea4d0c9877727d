"""Reads event timestamps from Kafka timestamps or from a field of JSON values.

With a field, a record with a null value has no timestamp and is rejected. Its Kafka timestamp is no substitute: it may
come from another clock (such as the wall clock of a backfill) and advance stream time past everything that is held.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.contracts.config.rules import TimestampField
from tidegate.contracts.event_time import MAX_TIME, NO_TIMESTAMP
from tidegate.contracts.records import Int64s, Records
from tidegate.operators.json_values import json_fields

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
"""The codes of this module, by the codes of `json_fields`."""

_EXPONENT = re.compile(b"[eE]")
_EXACT_DIGITS = 40
"""A number of up to so many characters and without an exponent is read exactly, any other one as a double."""

_MS_PER_UNIT = {"ms": Fraction(1), "s": Fraction(1000), "us": Fraction(1, 1000)}
_SHIFT_AND_DIVISOR = {"ms": (0, 1), "s": (3, 1), "us": (0, 1000)}
"""A number of the unit in ms, rounded down: floor(number * 10**shift) // divisor."""


def event_timestamps(records: Records, field: TimestampField | None) -> tuple[Int64s, npt.NDArray[np.int8]]:
    """Return the event timestamp of each record in ms, and a code per record.

    The code is 0 where there is a timestamp, otherwise 1 + the index in REASONS of the reason why there is none.
    `field` None: the timestamp is that of the Kafka record.
    """
    if field is None:
        return records.timestamp, (NULL_TIMESTAMP * (records.timestamp == NO_TIMESTAMP)).astype(np.int8)
    [found] = json_fields.fields_of(records, [field.names])
    shift, divisor = _SHIFT_AND_DIVISOR[field.unit]
    read = json_fields.floors_of(found, shift, longest=_EXACT_DIGITS)
    floors = read.floor // divisor
    in_range = (floors >= -MAX_TIME) & (floors <= MAX_TIME)
    timestamps = np.where(read.is_floor & in_range, floors, records.timestamp)
    codes = np.where(found.code == json_fields.FOUND, np.where(read.is_number, 0, NO_NUMBER), _CODES[found.code])
    codes[read.is_floor & ~in_range] = OUT_OF_RANGE
    for row in np.flatnonzero(read.is_number & ~read.is_floor).tolist():  # long numbers, and those with an exponent
        timestamp, codes[row] = _milliseconds(_number(found.text(row)), field.unit)
        if codes[row] == 0:
            timestamps[row] = timestamp
    return timestamps, codes.astype(np.int8)


def _number(text: bytes) -> Fraction:
    """Return the value of the JSON number; one that is too large for a double becomes a value that is out of range."""
    if len(text) <= _EXACT_DIGITS and not _EXPONENT.search(text):
        return Fraction(text.decode())
    double = float(text)
    return Fraction(repr(double)) if math.isfinite(double) else Fraction(math.copysign(10**6 * MAX_TIME, double))


def _milliseconds(number: Fraction, unit: str) -> tuple[int, int]:
    """Return the timestamp in whole milliseconds, rounded down, and a code: 0, or OUT_OF_RANGE."""
    milliseconds = math.floor(number * _MS_PER_UNIT[unit])
    if abs(milliseconds) > MAX_TIME:
        return 0, OUT_OF_RANGE
    return milliseconds, 0
