"""Evictor, distance and aggregate functions over window elements, for tests and scenarios."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def even(values: pa.Array, *_: Any) -> Mask:
    """Mark elements whose number is even for removal."""
    return _divisible(values, 2)


def multiple_of_3(values: pa.Array, *_: Any) -> Mask:
    """Mark elements whose number is a multiple of 3 for removal."""
    return _divisible(values, 3)


def _divisible(values: pa.Array, by: int) -> Mask:
    return np.array([_number(value) % by == 0 for value in values.to_pylist()], np.bool_)


def _number(value: bytes | None) -> float:
    """Return a JSON value that is a number, or its field `n`; NaN, which is not even divisible by 1, if neither is."""
    try:
        found = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return float("nan")
    found = found.get("n") if isinstance(found, dict) else found
    return found if isinstance(found, int | float) else float("nan")


def older_half(values: pa.Array, timestamps: npt.NDArray[Any], element_offsets: npt.NDArray[Any], *_: Any) -> Mask:
    """Mark the first half of each window's elements for removal."""
    at = np.arange(len(values))
    lengths = np.diff(element_offsets)
    return np.asarray(at < np.repeat(element_offsets[:-1] + lengths // 2, lengths))


def length_apart(values: pa.Array, lasts: pa.Array) -> npt.NDArray[Any]:
    """Return the absolute difference in length between each value and the last one."""
    mine, others = (np.array([len(value or b"") for value in side.to_pylist()], np.int64) for side in (values, lasts))
    return np.asarray(np.abs(mine - others))


def listed(
    values: pa.Array, timestamps: npt.NDArray[Any], element_offsets: npt.NDArray[Any], windows: Any, context: Any
) -> pa.Array:
    """Return each window's elements as JSON `[[value, timestamp], ...]`, with values as text or null."""
    pairs = list(zip(_texts(values), timestamps.tolist(), strict=True))
    bounds = zip(element_offsets[:-1].tolist(), element_offsets[1:].tolist(), strict=True)
    return pa.array([orjson.dumps(pairs[start:end]) for start, end in bounds], pa.binary())


def _texts(values: pa.Array) -> list[str | None]:
    return [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()]
