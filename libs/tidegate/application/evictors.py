"""Evictors: which elements a window loses when a result is emitted (FLIP-4).

`when`: elements are removed before the window's value is computed (default), or after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, overload

from tidegate.application.options import Duration, Fault, Function, Unusable, field_option, function_name

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
    measured: Any = True if field is None else field_option(field)
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
    """Return an evictor that removes the elements chosen by one function, or by two: before and after aggregation."""
    pair = [each for each in (before, after) if each is not None]
    chosen: Any = {"before": function_name(before), "after": function_name(after)} if pair else function_name(function)
    if function is not None and pair:
        chosen = Unusable(
            Fault(pair[0], "given besides another function", "give either one function, or before and after")
        )
    elif function is None and len(pair) < 2:
        remedy = "write tg.evict(FUNCTION), or tg.evict(before=FUNCTION, after=FUNCTION)"
        chosen = Unusable(Fault(pair[0] if pair else "tg.evict()", "a function is missing", remedy))
    return Evictor({"function": chosen, "when": when})
