"""Reads JSON numbers without losing digits. Every text that is given is the whole text of a JSON value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.json_text import DOT, MINUS, QUOTE, ZERO, is_named
from tidegate.kernels.columns import as_text, binary_column, in_one
from tidegate.kernels.compiled import inlined, wide

GOOD, WRONG, SLOW = range(3)
"""What a text is for a type: a value, none, or a number for `nearest_doubles`."""
POWERS = 10.0 ** np.arange(23)

_SMALLEST = -(2**63)
_SMALLEST_TENTH = -922337203685477580
_EXACT = 2**53
"""Integers up to this one are exact doubles, as are the powers of ten up to 10**22: one division of them is exact."""

_NOT_FINITE = np.frombuffer(b"NaN-Infinity", np.uint8)
"""The texts that Spark writes for floats that are no numbers of JSON; the last one is also there without its sign."""


def nearest_doubles(data: Array, start: Array, length: Array) -> Array:
    """Return the nearest doubles of JSON numbers of any length, infinite where they are too large."""
    texts = as_text(in_one(binary_column(data, data, start, length)))
    try:
        numbers: Array = texts.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # one of them is too large or too small
        numbers = np.array([float(text) for text in texts.to_pylist()])
    return numbers


@inlined
def begins_number(first: int) -> bool:
    """Return whether a JSON value with this first byte is a number."""
    return bool(first == MINUS or ZERO <= first < ZERO + 10)


@inlined
def read_whole(data: Array, at: int, end: int) -> Any:
    """Return whether the JSON number is an int64 written without fraction and exponent, and its value (else 0)."""
    negative = data[at] == MINUS
    largest = _SMALLEST if negative else _SMALLEST + 1
    number = wide(0)  # summed up as a negative number: int64 has one more of these than positive ones
    for place in range(at + negative, end):
        digit = wide(data[place]) - ZERO
        if digit < 0 or digit > 9 or number < _SMALLEST_TENTH or number * 10 < largest + digit:
            return False, wide(0)
        number = number * 10 - digit
    return True, number if negative else -number


@inlined
def read_floor(data: Array, at: int, end: int, shift: int) -> Any:
    """Return whether floor(number * 10**shift) of the JSON number fits into int64 and was read, and its value."""
    negative = data[at] == MINUS
    largest = _SMALLEST if negative else _SMALLEST + 1
    number = wide(0)  # summed up as in `read_whole`
    left = wide(-1)  # decimals still to read; -1 before the point
    rest = False
    for place in range(at + negative, end):
        digit = wide(data[place]) - ZERO
        if data[place] == DOT:
            left = wide(shift)
        elif digit < 0 or digit > 9:
            return False, wide(0)
        elif left == 0:
            rest = rest or digit > 0
        elif number < _SMALLEST_TENTH or number * 10 < largest + digit:
            return False, wide(0)
        else:
            number = number * 10 - digit
            left -= left > 0
    for _ in range(shift if left < 0 else left):
        if number < _SMALLEST_TENTH:
            return False, wide(0)
        number *= 10
    if not negative:
        return number >= largest, -number
    return number > _SMALLEST, number - rest


@inlined
def read_not_finite(data: Array, at: int) -> Any:
    """Return whether the JSON value at `at` is the text "NaN", "Infinity" or "-Infinity", and which float that is."""
    if data[at] != QUOTE:
        return False, 0.0
    if is_named(data, at + 1, _NOT_FINITE, 0, 3):
        return True, np.nan
    if is_named(data, at + 1, _NOT_FINITE, 4, 8):
        return True, np.inf
    return is_named(data, at + 1, _NOT_FINITE, 3, 9), -np.inf


@inlined
def read_short_decimal(data: Array, at: int, end: int, powers: Array) -> Any:
    """Return what the JSON value is, and its value if it is a short decimal number, whose double is exact."""
    negative = data[at] == MINUS
    if not (negative or ZERO <= data[at] <= ZERO + 9):
        return WRONG, 0.0
    number, decimals = wide(0), wide(-1)
    for place in range(at + negative, end):
        digit = wide(data[place]) - ZERO
        if data[place] == DOT:
            decimals = wide(0)
        elif digit < 0 or digit > 9 or number > (_EXACT - 9) // 10:
            return SLOW, 0.0
        else:
            number = number * 10 + digit
            decimals += decimals >= 0
    if decimals >= len(powers):
        return SLOW, 0.0
    value = float(number)
    if decimals > 0:
        value /= powers[decimals]
    return GOOD, -value if negative else value
