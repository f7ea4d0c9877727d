"""Which elements a window loses, as a configuration writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.option_types import Count, Duration, FunctionName
from tidegate.contracts.config.rules import JsonField
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.naming import function_problem
from tidegate.operators.windowed_aggregation.config.aggregates import read_source

When = Literal["before", "after"]


class CountEvictor(Config):
    """An evictor that keeps a number of elements."""

    count: Count
    """Number of elements that are kept: the oldest by arrival are removed until so many are left."""
    when: When = "before"
    """Before the window's value is computed, or after."""


class TimeEvictor(Config):
    """An evictor that keeps recent elements."""

    time: Duration
    """Elements are removed if they are at least this much older than the newest one; with 0 all are removed."""
    when: When = "before"
    """Before the window's value is computed, or after."""


def _read_distance(value: object) -> object:
    return _read_function_name(value) if isinstance(value, str) else read_source(value)


def _read_function_name(value: object) -> object:
    if not isinstance(value, str):
        raise InvalidValue("not a function", "write module:function")
    if (problem := function_problem(value)) is not None:
        raise problem
    return value


class Delta(Config):
    """How far an element may be from the last one."""

    threshold: Annotated[float, Field(allow_inf_nan=False)]
    """Elements at least this far from the one that arrived last are removed; with 0 or less that one is removed, too.
    """
    distance: Annotated[JsonField | Literal[True] | FunctionName, BeforeValidator(_read_distance)]
    """Difference of a field's numbers, with `true` of values that are numbers, or `module:function`."""


class DeltaEvictor(Config):
    """An evictor that keeps elements near the last one."""

    delta: Delta
    """Distance from the last element at which elements are removed."""
    when: When = "before"
    """Before the window's value is computed, or after."""


class BeforeAndAfter(Config):
    """Two functions, which remove elements before and after a window's value is computed."""

    before: FunctionName
    """`module:function`; it gets all elements."""
    after: FunctionName
    """`module:function`; it gets the elements that are left."""


def _read_functions(value: object) -> object:
    if isinstance(value, Mapping):
        return BeforeAndAfter.model_validate(value)
    return value if isinstance(value, BeforeAndAfter) else _read_function_name(value)


class FunctionEvictor(Config):
    """An evictor that removes the elements that a function chooses."""

    function: Annotated[FunctionName | BeforeAndAfter, BeforeValidator(_read_functions)]
    """`module:function`, or one for each moment: `{before: module:function, after: module:function}`."""
    when: When | None = None
    """Before the window's value is computed (default), or after."""

    @field_validator("when")
    @classmethod
    def _when_fits_function(cls, when: str | None, info: ValidationInfo) -> str | None:
        if when is not None and isinstance(info.data.get("function"), BeforeAndAfter):
            raise InvalidValue("`before` and `after` already say when each function runs", "remove when")
        return when

    def functions(self) -> tuple[str | None, str | None]:
        """Return the functions that run before and after the value is computed; None for neither."""
        if isinstance(self.function, BeforeAndAfter):
            return self.function.before, self.function.after
        return (None, self.function) if self.when == "after" else (self.function, None)


_EVICTORS: dict[str, type[Config]] = {
    "count": CountEvictor,
    "time": TimeEvictor,
    "delta": DeltaEvictor,
    "function": FunctionEvictor,
}


def _read_evictor(value: object) -> object:
    if value is None or isinstance(value, CountEvictor | TimeEvictor | DeltaEvictor | FunctionEvictor):
        return value
    kinds = [kind for kind in _EVICTORS if isinstance(value, Mapping) and kind in value]
    if not isinstance(value, Mapping) or len(kinds) != 1:
        raise InvalidValue("not an evictor", "write evictor: {count: 100}, or time, delta or function")
    return _EVICTORS[kinds[0]].model_validate(value)


Evictor: TypeAlias = Annotated[
    CountEvictor | TimeEvictor | DeltaEvictor | FunctionEvictor | None, BeforeValidator(_read_evictor)
]
