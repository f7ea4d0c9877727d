"""What a record does to sessions that keep their elements.

The session that a record makes of others is one of them, the one with most elements: it gets new bounds, and the
elements of the others are moved to it. So a record that only makes a session longer moves no element.
"""

from __future__ import annotations

from typing import Any

from tidegate.kernels import time_buffer, version_chains
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.touched import STORED
from tidegate.kernels.windows import DONE
from tidegate.operators.windowed_aggregation import bookkeeping, sessions
from tidegate.operators.windowed_aggregation.elements import recording, store
from tidegate.operators.windowed_aggregation.elements.recording import NEEDS_ROUND, Outcome, Rows, State, Trigger
from tidegate.operators.windowed_aggregation.elements.store import NONE
from tidegate.operators.windowed_aggregation.step import MERGED, NEEDED, STREAM_TIME, SUPPRESSED
from tidegate.operators.windowed_aggregation.window_times import EMITTED, PENDING, Rules


@inlined
def add_to_session(
    state: State, rows: Rows, row: int, key: int, rules: Rules, trigger: Trigger, outcome: Outcome
) -> Any:
    """Merge the row's record and all sessions that touch it into one; return DONE, or what is lacking to begin."""
    timestamp = rows.values.timestamp[row]
    first, last = sessions.touching(state, key, timestamp, rules)
    start = sessions.merged_start(state, key, first, last, timestamp)
    end = sessions.merged_end(state, key, first, last, timestamp)
    fires = recording.fires_with(_records_since(state, key, first, last), rules, trigger)
    lacking = _missing_room(state, rows, row, key, first, last, fires, outcome)
    if lacking != DONE:
        return lacking
    if start != end or not (fires or sessions.emits_at_once(end, outcome.tally[STREAM_TIME], rules)):
        _retract(state, key, first, last, outcome)
    if first == last:
        slot = recording.open_window(state, rows.keys, row, key, start, start, end, outcome)
    else:
        slot = _merge(state, key, first, last, rules, outcome)
        if start != state.start[slot] or end != state.end[slot]:
            _give_bounds(state, slot, first, start, end, rows.values.offset[row])
    recording.take(state, slot, rows, row, end, fires, rules, trigger, outcome)
    return DONE


@inlined
def _records_since(state: State, key: int, first: int, last: int) -> Any:
    """Return how many records came to those sessions since each of them fired."""
    since = wide(0)
    for at in range(first, last):
        since += state.content.since[version_chains.version_at(state.windows.versions, key, at)]
    return since


@inlined
def _missing_room(
    state: State, rows: Rows, row: int, key: int, first: int, last: int, fires: bool, outcome: Outcome
) -> Any:
    """Return DONE, or what is lacking to merge those sessions with the row's record, retract their results and fire."""
    lacking = recording.missing_room_for_element(state, rows.values, row, outcome)
    if lacking == DONE and first == last:
        lacking = bookkeeping.missing_room(state, rows.keys, row, key, first, outcome.tally, NEEDED)
    if lacking != DONE:
        return lacking
    count = wide(1)
    size = store.size_of(rows.values.value_length[row])
    for at in range(first, last):
        slot = version_chains.version_at(state.windows.versions, key, at)
        # A round ends with the removals of the sessions that fired, so these must still be there.
        if state.content.eviction_pending[slot] != 0 and (fires or last - first > 1):
            return NEEDS_ROUND
        count += state.content.length[slot]
        size += state.content.bytes[slot]
    if not fires:
        count = wide(0)
        size = wide(0)
    return recording.cannot_list(count, size, last - first + 1, outcome)


@inlined
def _retract(state: State, key: int, first: int, last: int, outcome: Outcome) -> None:
    """Take back the results of those sessions that were emitted, with cause `merged`."""
    for at in range(first, last):
        slot = version_chains.version_at(state.windows.versions, key, at)
        if state.windows.phase[slot] == EMITTED:
            recording.emit(state, slot, wide(MERGED), outcome)


@inlined
def _merge(state: State, key: int, first: int, last: int, rules: Rules, outcome: Outcome) -> Any:
    """Merge those sessions into the one with most elements, whose bounds stay; return its slot."""
    versions = state.windows.versions
    kept = version_chains.version_at(versions, key, first)
    for at in range(first + 1, last):
        slot = version_chains.version_at(versions, key, at)
        if state.content.length[slot] > state.content.length[kept]:
            kept = slot
    recording.touch(state, kept, outcome)
    at = first
    for _ in range(last - first):
        slot = version_chains.version_at(versions, key, at)
        if slot == kept:
            at += 1
        else:
            _absorb_session(state, kept, slot, rules, outcome)
    return kept


@inlined
def _absorb_session(state: State, slot: int, other: int, rules: Rules, outcome: Outcome) -> None:
    """Move the elements of the other session to this one and remove it; a pending result of it is suppressed."""
    if state.windows.phase[other] == PENDING:
        outcome.tally[SUPPRESSED] += 1
    recording.remove(state, other, rules, outcome)
    state.content.since[slot] += state.content.since[other]
    adopt(state, slot, other)


@inlined
def adopt(state: State, slot: int, other: int) -> None:
    """Move all elements of the other window to this one, in order of arrival."""
    element = wide(state.content.first[other])
    while element != NONE:
        state.elements.window[element] = slot
        if state.elements.status[element] == STORED:
            recording.keep_checksum(state, element)
        element = wide(state.elements.after[element])
    store.merge(state.elements, state.content, slot, other)


@inlined
def _give_bounds(state: State, slot: int, at: int, start: int, end: int, offset: int) -> None:
    """Make the session, at that entry of its key's chain, the one that a record of that offset opened, with bounds."""
    state.start[slot] = start
    state.end[slot] = end
    state.windows.order.arrival[slot] = offset
    version_chains.set_time(state.windows.versions, wide(state.windows.key[slot]), at, start)
    # The arrival is part of the order, so the session moves in it even if it is due at the same time.
    time_buffer.move(state.windows.order, slot, time_buffer.place_of(state.windows.order, slot))
