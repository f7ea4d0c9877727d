"""Evictors: which elements a window loses when a result is emitted (FLIP-4).

`when`: elements are removed before the window's value is computed (default), or after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, overload

from tidegate.application.options import Duration, Fault, Function, Unusable, function_name

When: TypeAlias = Literal["before", "after"]


@dataclass(frozen=True)
class Evictor:
    """An evictor, by the options of the configuration file."""

    options: Mapping[str, Any] = field(hash=False)


def newest(count: int, *, when: When | None = None) -> Evictor:
    """Return an evictor that keeps the newest elements by arrival, at most so many."""
    return Evictor({"count": count, "when": when})


def recent(age: Duration, *, when: When | None = None) -> Evictor:
    """Return an evictor that removes elements at least this much older than the newest one."""
    return Evictor({"time": age, "when": when})


@overload
def near_last(threshold: float, field: str | None = None, *, when: When | None = None) -> Evictor: ...


@overload
def near_last(threshold: float, *, distance: Function, when: When | None = None) -> Evictor: ...


def near_last(
    threshold: float, field: str | None = None, *, distance: Function | None = None, when: When | None = None
) -> Evictor:
    """Return an evictor that removes elements at least as far from the last one as the threshold.

    The distance is the difference of the numbers in `field`, or of values that are numbers; or what the function
    `distance` returns.
    """
    measured: Any = True if field is None else {"field": field}
    if distance is not None:
        measured = function_name(distance)
    if distance is not None and field is not None:
        measured = Unusable(Fault(field, "a function measures the distance already", "give field or distance"))
    return Evictor({"delta": {"threshold": threshold, "distance": measured}, "when": when})


@overload
def evict(function: Function, *, when: When | None = None) -> Evictor: ...


@overload
def evict(*, before: Function, after: Function) -> Evictor: ...


def evict(
    function: Function | None = None,
    *,
    before: Function | None = None,
    after: Function | None = None,
    when: When | None = None,
) -> Evictor:
    """Return an evictor that removes the elements that the function chooses, or one function for each moment."""
    chosen: Any = function_name(function)
    if before is not None or after is not None:
        chosen = {"before": function_name(before), "after": function_name(after)}
    if function is not None and isinstance(chosen, dict):
        chosen = Unusable(Fault(function, "before and after are functions, too", "give one function, or these two"))
    return Evictor({"function": chosen, "when": when})
