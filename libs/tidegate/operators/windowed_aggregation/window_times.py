"""The times of windows: which windows contain a time, until when each is open, and when its next event is due.

`sessions` says which sessions a record merges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.records import Int64s
from tidegate.kernels import version_chains
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.version_chains import NONE
from tidegate.kernels.windows import Windows
from tidegate.operators.windowed_aggregation.config import (
    Hopping,
    Session,
    Tumbling,
    WindowedAggregationRules,
    least_retention,
)

UPDATES, ON_TIME_FIRST, FINAL, EVERY = range(4)
"""When results are emitted; EVERY: after a number of records."""

SPAN, SESSION, UNLIMITED = range(3)
"""Kinds of windows; SPAN: tumbling or hopping, a span of fixed length whose start follows from its length."""

PENDING, EMITTED, CLOSED = range(3)
"""Phases of a window: changed since its last result; not changed since; closed, so that it accepts no records."""

MAX = 2**63 - 1

_EMITS = {"updates": UPDATES, "on_time": ON_TIME_FIRST, "final": FINAL}


class Rules(NamedTuple):
    """The configuration in numbers; MAX: no bound, or never."""

    kind: int
    size: int
    advance: int
    grace: int
    retention: int
    emit: int
    stop_keys: int
    stop_bytes: int
    stop_length: int


def rules_of(config: WindowedAggregationRules) -> Rules:
    """Return the configuration in numbers."""
    window, stop = config.window, config.buffer if config.buffer and config.buffer.when_full == "shut_down" else None
    match window:
        case Tumbling():
            shape = SPAN, window.tumbling, window.tumbling, window.grace
        case Hopping():
            shape = SPAN, window.hopping, window.advance, window.grace
        case Session():
            shape = SESSION, window.session, 1, window.grace
        case _:
            shape = UNLIMITED, MAX, MAX, 0
    return Rules(
        *shape,
        retention=least_retention(window) if config.retention is None else config.retention,
        emit=EVERY if config.emit is None else _EMITS[config.emit],
        stop_keys=MAX if stop is None or stop.max_keys is None else stop.max_keys,
        stop_bytes=MAX if stop is None or stop.max_bytes is None else stop.max_bytes,
        stop_length=window.max_length or MAX if isinstance(window, Session) else MAX,
    )


def due_times(ends: Int64s, rules: Rules) -> Int64s | None:
    """Return the stream times at which results of windows with these ends are due; None if time releases none."""
    if rules.kind == UNLIMITED or rules.emit not in (ON_TIME_FIRST, FINAL):
        return None
    ended = ends + (rules.size + 1 if rules.kind == SESSION else 0)
    return ended + (rules.grace if rules.emit == FINAL else 0)


@inlined
def find_key(windows: Windows, batch: FlatRecords, row: int) -> Any:
    """Return the slot of the row's key; NONE if the key has no window, or the row has no key."""
    if batch.key_length[row] < 0:
        return NONE
    return version_chains.find(windows.versions, batch.data, batch.key_start[row], batch.key_length[row])


@inlined
def first_start(timestamp: int, rules: Rules) -> Any:
    """Return the start of the first window that contains the timestamp."""
    if timestamp < rules.size or rules.kind == UNLIMITED:
        return wide(0)
    return ((timestamp - rules.size) // rules.advance + 1) * rules.advance


@inlined
def windows_from(start: int, timestamp: int, rules: Rules) -> Any:
    """Return how many windows contain the timestamp, from the one with that start on."""
    if rules.kind == UNLIMITED:
        return wide(1)
    return (timestamp - start) // rules.advance + 1


@inlined
def end_of(start: int, rules: Rules) -> Any:
    return start + rules.size


@inlined
def is_open(end: int, stream_time: int, rules: Rules) -> bool:
    """Return True while a window with that end accepts records; an unlimited window always does."""
    return bool(rules.kind == UNLIMITED or end > stream_time - rules.grace)


@inlined
def find_span(windows: Windows, key: int, start: int) -> Any:
    """Return the slot of the key's window with that start; NONE if there is none."""
    if key == NONE:
        return NONE
    versions = windows.versions
    at = version_chains.entries_until(versions, key, start) - 1
    if at < 0 or version_chains.time_at(versions, key, at) != start:
        return NONE
    return version_chains.version_at(versions, key, at)


@inlined
def due_at(start: int, end: int, phase: int, rules: Rules) -> Any:
    """Return the stream time at which the next event of a window of that phase is due; MAX: never.

    The events are its on-time result, its closing and its expiry.
    """
    if rules.kind == UNLIMITED:
        return wide(MAX)
    session = rules.kind == SESSION
    if expires_next(phase, rules):
        return end + rules.retention + 1 if session else start + rules.retention
    ended = end + rules.size + 1 if session else wide(end)
    return ended if phase == PENDING and rules.emit == ON_TIME_FIRST else ended + rules.grace


@inlined
def expires_next(phase: int, rules: Rules) -> bool:
    """Return True if the only event that is left for the window is its expiry.

    A session whose results are not final never closes: as long as it is kept, a record may merge it with a later one.
    """
    if rules.kind == SESSION and rules.emit != FINAL:
        return phase != PENDING or rules.emit != ON_TIME_FIRST
    return phase == CLOSED
