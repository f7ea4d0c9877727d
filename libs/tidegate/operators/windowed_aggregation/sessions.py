"""Sessions: which of them a record touches, what it makes of them, and where they stand in the chain of their key.

An open session stands in its key's chain at its start. A closed one stands at `CLOSED_OFFSET` + end instead, so that
open sessions, which alone take records, follow behind all closed ones. Open sessions are more than a gap apart. Closed
sessions are ordered by end because they may overlap: a record that touches both a closed and an open session is in the
open one.
"""

from __future__ import annotations

from typing import Any

from tidegate.kernels import version_chains
from tidegate.kernels import windows as kernel
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.version_chains import NONE
from tidegate.operators.windowed_aggregation.bookkeeping import HasWindows
from tidegate.operators.windowed_aggregation.window_times import CLOSED, ON_TIME_FIRST, SESSION, UPDATES, Rules

CLOSED_OFFSET = -(2**63)
"""Closed sessions stand in their key's chain at their end plus this: below 0, so before all open ones."""


@inlined
def touching(state: HasWindows, key: int, timestamp: int, rules: Rules) -> Any:
    """Return the entries [first, last) of the key's chain that are open sessions and touch the timestamp."""
    if key == NONE:
        return wide(0), wide(0)
    versions = state.windows.versions
    last = version_chains.entries_until(versions, key, timestamp + rules.size)
    first = last
    while first > 0 and version_chains.time_at(versions, key, first - 1) >= 0:
        if state.end[version_chains.version_at(versions, key, first - 1)] < timestamp - rules.size:
            break
        first -= 1
    return first, last


@inlined
def merged_start(state: HasWindows, key: int, first: int, last: int, timestamp: int) -> Any:
    """Return the start of the session that a record of that time makes of those entries."""
    if first == last:
        return timestamp
    return min(timestamp, version_chains.time_at(state.windows.versions, key, first))


@inlined
def merged_end(state: HasWindows, key: int, first: int, last: int, timestamp: int) -> Any:
    """Return the end of the session that a record of that time makes of those entries."""
    if first == last:
        return timestamp
    return max(timestamp, state.end[version_chains.version_at(state.windows.versions, key, last - 1)])


@inlined
def effects(state: HasWindows, timestamp: int, key: int, stream_time: int, rules: Rules) -> Any:
    """Return whether a session takes a record of that time, and what that changes at most.

    These are the change in the number of open sessions, and an upper bound on the number of emissions.
    """
    first, last = touching(state, key, timestamp, rules)
    end = merged_end(state, key, first, last, timestamp)
    late_until = stream_time - rules.grace - rules.size
    # rule: flushed-session-closed
    taking = end >= late_until and (first < last or not _touches_closed(state, key, timestamp, late_until, rules))
    return taking, 1 - (last - first), last - first + 2


@inlined
def length(state: HasWindows, timestamp: int, key: int, rules: Rules) -> Any:
    """Return the length of the session that a record of that time would be in."""
    first, last = touching(state, key, timestamp, rules)
    return merged_end(state, key, first, last, timestamp) - merged_start(state, key, first, last, timestamp)


@inlined
def _touches_closed(state: HasWindows, key: int, timestamp: int, late_until: int, rules: Rules) -> bool:
    """Return True if a session of the key that touches the timestamp is closed, although its grace has not passed.

    A flush or a shorter grace closed it. Any other closed session ends before `late_until`, where the search ends.
    """
    if key == NONE:
        return False
    versions = state.windows.versions
    since = max(late_until, timestamp - rules.size)
    at = version_chains.entries_until(versions, key, wide(-1)) - 1
    while at >= 0 and version_chains.time_at(versions, key, at) - CLOSED_OFFSET >= since:
        if state.start[version_chains.version_at(versions, key, at)] <= timestamp + rules.size:
            return True
        at -= 1
    return False


@inlined
def emits_at_once(end: int, stream_time: int, rules: Rules) -> bool:
    """Return True if a session with that end emits a result as soon as it has taken a record, by its time alone."""
    return bool(rules.emit == UPDATES or (rules.emit == ON_TIME_FIRST and end + rules.size < stream_time))


@inlined
def place_of(state: HasWindows, slot: int, rules: Rules) -> Any:
    """Return the time at which the window stands in the chain of its key."""
    if rules.kind == SESSION and state.windows.phase[slot] == CLOSED:
        return state.end[slot] + CLOSED_OFFSET
    return state.start[slot]


@inlined
def move_to_closed(state: HasWindows, slot: int) -> None:
    """Move the session, which was open, to its place among the closed ones of its key."""
    place = state.end[slot] + CLOSED_OFFSET
    versions, key = state.windows.versions, wide(state.windows.key[slot])
    before = version_chains.entries_until(versions, key, place)
    version_chains.move(versions, key, kernel.index_of(state.windows, slot, state.start[slot]), before, place)


@inlined
def find(state: HasWindows, batch: FlatRecords, row: int, start: int, end: int) -> Any:
    """Return the slot of the row's key with those bounds, a session, open or closed, or another window; or NONE."""
    versions = state.windows.versions
    key = version_chains.find(versions, batch.data, batch.key_start[row], batch.key_length[row])
    if key == NONE:
        return NONE
    for place in (start, end + CLOSED_OFFSET):
        at = version_chains.entries_until(versions, key, place) - 1
        while at >= 0 and version_chains.time_at(versions, key, at) == place:
            slot = version_chains.version_at(versions, key, at)
            if state.end[slot] == end:
                return slot
            at -= 1
    return NONE
