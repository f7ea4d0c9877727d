"""Reads decimals, dates and times from their texts.

A decimal is a number with no more digits than its type has, before and after the point. Dates and times are written as
ISO 8601 says, with microseconds at most: with the offset from UTC if their type has a time zone, and without it if not.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array


def is_exact(type: pa.DataType) -> bool:
    """Return whether values of the type are read from texts: decimals, dates and timestamps."""
    return bool(pa.types.is_decimal128(type) or pa.types.is_date32(type) or pa.types.is_timestamp(type))


def parsed(texts: pa.Array, type: pa.DataType) -> tuple[pa.Array, Array]:
    """Return the texts as values of the type, null where a text is none, and which of them are none."""
    try:
        return texts.cast(type), np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:  # one of them is none
        if len(texts) == 1:
            return pa.nulls(1, type), np.ones(1, np.bool_)
    half = len(texts) // 2
    (first, wrong), (second, wrong_behind) = parsed(texts[:half], type), parsed(texts[half:], type)
    return pa.concat_arrays([first, second]), np.concatenate([wrong, wrong_behind])
