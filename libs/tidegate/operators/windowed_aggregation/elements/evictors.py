"""The built-in evictors: count, time and delta."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.kernels.compiled import inlined, wide
from tidegate.operators.windowed_aggregation.config import (
    CountEvictor,
    DeltaEvictor,
    FunctionEvictor,
    TimeEvictor,
    WindowedAggregationRules,
)
from tidegate.operators.windowed_aggregation.elements import store
from tidegate.operators.windowed_aggregation.elements.store import NONE, Content, Elements

NEVER, BEFORE, AFTER = range(3)
"""When elements are removed: before the value is computed, or after."""

NOTHING, COUNT, TIME, DELTA, FUNCTION = range(5)
"""What removes elements; FUNCTION: functions, which run between two calls of the kernel."""


class Evictor(NamedTuple):
    """An evictor in numbers. `keep`: elements, or ms; `number`: the row of the number that gives the distance."""

    kind: int
    when: int
    keep: int
    threshold: float
    number: int


def evictor_of(config: WindowedAggregationRules, number: int) -> Evictor:
    """Return the configured evictor. `number`: the row of the number that it compares, if it compares one."""
    found = config.evictor
    match found:
        case None:
            return Evictor(NOTHING, NEVER, 0, 0.0, 0)
        case CountEvictor():
            kind, keep, threshold = COUNT, found.count, 0.0
        case TimeEvictor():
            kind, keep, threshold = TIME, found.time, 0.0
        case DeltaEvictor() if not isinstance(found.delta.distance, str):
            kind, keep, threshold = DELTA, 0, found.delta.threshold
        case DeltaEvictor() | FunctionEvictor():
            return Evictor(FUNCTION, NEVER, 0, 0.0, 0)
    return Evictor(kind, AFTER if found.when == "after" else BEFORE, keep, threshold, number)


class Bounds(NamedTuple):
    """The limits for the elements of a window.

    `excess`: how many are too many; `too_old`: the last timestamp that is too old; `last`: the number of the last
    element.
    """

    excess: int
    too_old: int
    last: float


@inlined
def bounds_of(elements: Elements, content: Content, window: int, evictor: Evictor) -> Any:
    """Return the limits for the window's elements."""
    excess = wide(content.length[window]) - evictor.keep
    if evictor.kind == TIME:
        return Bounds(excess, _newest(elements, content, window) - evictor.keep, 0.0)
    if evictor.kind == DELTA and content.length[window] > 0:
        return Bounds(excess, wide(0), store.number(elements, evictor.number, wide(content.last[window])))
    return Bounds(excess, wide(0), 0.0)


@inlined
def _newest(elements: Elements, content: Content, window: int) -> Any:
    newest = wide(0)
    slot = wide(content.first[window])
    while slot != NONE:
        newest = max(newest, elements.payloads.timestamp[slot])
        slot = wide(elements.after[slot])
    return newest


@inlined
def is_evicted(elements: Elements, slot: int, rank: int, bounds: Bounds, evictor: Evictor) -> Any:
    """Return True if the element is removed. `rank`: how many elements of the window arrived before it."""
    if evictor.kind == COUNT:
        return rank < bounds.excess
    if evictor.kind == TIME:
        return elements.payloads.timestamp[slot] <= bounds.too_old
    return abs(store.number(elements, evictor.number, slot) - bounds.last) >= evictor.threshold
