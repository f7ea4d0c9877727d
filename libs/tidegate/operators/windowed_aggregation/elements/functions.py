"""User functions over the elements of many windows.

An evictor's `mask(values, timestamps, element_offsets, windows, context)` returns a bool per element: true for those to
remove. An aggregate's function takes the same arguments and returns a value per window: bytes or JSON text, null for
none. A distance, `distance(values, lasts)`, returns a number per element: how far it is from the one that arrived last.

The elements of window w are those from element_offsets[w] to element_offsets[w + 1], in order of arrival. What a
function returns for a window may depend on that window alone: which windows share a call is not defined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Array
from tidegate.operators.options import user_functions
from tidegate.operators.options.reducer import Reducer
from tidegate.operators.options.user_functions import described
from tidegate.operators.windowed_aggregation.config import DeltaEvictor, FunctionEvictor, WindowedAggregationRules


class Windows(NamedTuple):
    """The windows: keys (binary), and bounds in ms."""

    key: pa.Array
    start: Array
    end: Array


class Context(NamedTuple):
    """The times of a call.

    `stream_time`: T when each window fired. `clock_ms`: the batch's clock; None in an idle advance and a flush.
    """

    stream_time: Array
    clock_ms: int | None


class Fired(NamedTuple):
    """What a function gets of windows that fired: `values` are binary, `timestamps` and `element_offsets` int64."""

    values: pa.Array
    timestamps: Array
    element_offsets: Array
    windows: Windows
    context: Context


@dataclass(frozen=True)
class UserFunction:
    """A user function, with its name in the configuration and the role that it has there."""

    name: str
    what: str
    function: Callable[..., Any]

    def mask(self, fired: Fired) -> Array:
        """Return True for each element to remove. Raises UserError if the function fails or returns anything else."""
        found = self._called(fired)
        found = found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found
        if not isinstance(found, np.ndarray) or found.dtype != np.bool_:
            raise self._wrong(f"gives {described(found)}, not an array of bool")
        return np.asarray(self._as_long_as(found, len(fired.values), "elements"))

    def distances(self, fired: Fired) -> Array:
        """Return how far each element is from the last one of its window. Raises UserError as `mask` does."""
        counts = np.diff(fired.element_offsets)
        lasts = fired.values.take(pa.array(np.repeat(fired.element_offsets[1:] - 1, counts)))
        found = self._called((fired.values, lasts))
        found = found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
            raise self._wrong(f"gives {described(found)}, not an array of numbers")
        return np.asarray(self._as_long_as(found, len(fired.values), "elements"))

    def values(self, fired: Fired) -> pa.Array:
        """Return the value of each window. Raises UserError as `mask` does."""
        found = self._called(fired)
        if not isinstance(found, pa.Array) or not (pa.types.is_binary(found.type) or pa.types.is_string(found.type)):
            raise self._wrong(f"gives {described(found)}, not an Arrow array of binary or string")
        return self._as_long_as(found, len(fired.windows.start), "windows").cast(pa.binary())

    def _called(self, arguments: tuple[Any, ...]) -> Any:
        try:
            return self.function(*arguments)
        except Exception as error:
            raise self._wrong(f"fails: {type(error).__name__}: {error}") from error

    def _as_long_as(self, found: Any, length: int, what: str) -> Any:
        if len(found) != length:
            raise self._wrong(f"gives {len(found)} answers for {length} {what}")
        return found

    def _wrong(self, fault: str) -> UserError:
        return user_functions.wrong(self.name, self.what, fault)


class Functions(NamedTuple):
    """The functions of a configuration; None where it has none.

    A distance with its threshold is the mask `before` or `after`.
    """

    before: Callable[[Fired], Array] | None = None
    after: Callable[[Fired], Array] | None = None
    value: UserFunction | None = None
    reducer: Reducer | None = None


def functions_of(config: WindowedAggregationRules) -> Functions:
    """Load the functions that the configuration names. Raises UserError if one cannot be loaded."""
    if (reduction := config.aggregate.reduce) is not None:
        return Functions(reducer=Reducer.loaded(reduction.function, reduction.emits))
    named = config.aggregate.function
    value = _loaded(named, "aggregate's function") if named else None
    evictor = config.evictor
    if isinstance(evictor, FunctionEvictor):
        before, after = (_loaded(name, "evictor").mask if name else None for name in evictor.functions())
        return Functions(before, after, value)
    if isinstance(evictor, DeltaEvictor) and isinstance(evictor.delta.distance, str):
        mask = _Far(_loaded(evictor.delta.distance, "evictor's distance"), evictor.delta.threshold).mask
        return Functions(None, mask, value) if evictor.when == "after" else Functions(mask, None, value)
    return Functions(None, None, value)


@dataclass(frozen=True)
class _Far:
    """The mask of elements at a distance of at least `threshold` from the last one."""

    distance: UserFunction
    threshold: float

    def mask(self, fired: Fired) -> Array:
        """Return True for each element to remove."""
        return np.asarray(self.distance.distances(fired) >= self.threshold)


def _loaded(name: str, what: str) -> UserFunction:
    return UserFunction(name, what, user_functions.load(name, what))
