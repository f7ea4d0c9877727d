"""Kernels that apply changelog rows to windows with elements.

The row of a session's element does not say which session has the element: it has the element's timestamp as both of
its bounds, so that it need not change when sessions are merged. The element belongs to the open session of its key
that contains its timestamp. The rows of sessions are applied first, then those of elements. In between, elements of a
session whose row is written or deleted wait in a window of their key, the *holder*, at `HOLDER_PLACE` in its chain. So
do elements whose session comes with later rows. At the end each moves to its session.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import time_buffer, version_chains
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.touched import STORED
from tidegate.kernels.windows import DONE
from tidegate.operators.windowed_aggregation import bookkeeping, sessions
from tidegate.operators.windowed_aggregation.bookkeeping import OPEN, OPEN_BYTES
from tidegate.operators.windowed_aggregation.elements import recording, store
from tidegate.operators.windowed_aggregation.elements.merging import adopt
from tidegate.operators.windowed_aggregation.elements.recording import (
    ELEMENTS_TOUCHED,
    WINDOW,
    Outcome,
    Rows,
    State,
)
from tidegate.operators.windowed_aggregation.elements.step import store_window
from tidegate.operators.windowed_aggregation.elements.store import NONE
from tidegate.operators.windowed_aggregation.step import NEEDED, NEXT_ROW, TOUCHED
from tidegate.operators.windowed_aggregation.window_times import CLOSED, Rules, due_at, find_key, find_span

HOLDER = 3
"""Phase of a window that holds elements of its key while changelog rows are applied."""

HOLDER_PLACE = -1
"""Place of a holder in the chain of its key: behind all closed sessions, before all open ones."""


class Changes(NamedTuple):
    """Changelog rows, without their keys, values and times: whether deleted, bounds and arrivals.

    An arrival of WINDOW means that the row is a window's. Such a row has more: `opened`, the arrival of the record that
    opened the window; `since`, how many records came since it fired; `phase`.
    """

    deleted: Array
    start: Array
    end: Array
    arrival: Array
    opened: Array
    since: Array
    phase: Array


@compiled_in_place
def replay(state: State, whole: FlatRecords, rows: Rows, changes: Changes, rules: Rules, outcome: Outcome) -> Any:
    """Apply the changelog rows of windows that are no sessions, and of their elements, from tally[NEXT_ROW] on.

    Return DONE, or what lacks room before that row. `whole`: keys and values.
    """
    for row in range(outcome.tally[NEXT_ROW], len(rows.advances_to)):
        outcome.tally[NEXT_ROW] = row
        key = find_key(state.windows, rows.keys, row)
        slot = find_span(state.windows, key, changes.start[row])
        if changes.deleted[row]:
            _undo_row(state, slot, changes.arrival[row], rules, outcome)
            continue
        if slot == NONE:
            start = changes.start[row]
            at = bookkeeping.entry_for(state.windows, key, start)
            lacking = bookkeeping.missing_room(state, rows.keys, row, key, at, outcome.tally, NEEDED)
            if lacking != DONE:
                return lacking
            slot = recording.open_window(state, rows.keys, row, key, start, start, changes.end[row], outcome)
            recording.settle_window(state, slot)
        if changes.arrival[row] == WINDOW:
            lacking = store_window(state, slot, whole, row, outcome)
            if lacking == DONE:
                _restore_window(state, slot, whole, row, changes, rules)
        else:
            lacking = _restore_element(state, slot, rows, row, outcome)
        if lacking != DONE:
            return lacking
        _forget(outcome)
    outcome.tally[NEXT_ROW] = len(rows.advances_to)
    return DONE


@inlined
def _forget(outcome: Outcome) -> None:
    outcome.tally[TOUCHED] = 0
    outcome.tally[ELEMENTS_TOUCHED] = 0


@inlined
def _undo_row(state: State, slot: int, arrival: int, rules: Rules, outcome: Outcome) -> None:
    """Remove the window, or its element of that arrival, as a `delete` in the changelog asks for."""
    if slot == NONE:
        return
    if arrival != WINDOW:
        element = store.find(state.elements, state.content, slot, arrival)
        if element != NONE:
            _drop_element(state, element, outcome)
        return
    while state.content.length[slot] > 0:
        _drop_element(state, wide(state.content.first[slot]), outcome)
    _drop_window(state, slot, sessions.place_of(state, slot, rules), outcome)


@inlined
def _drop_element(state: State, element: int, outcome: Outcome) -> None:
    recording.remove_element(state, element, outcome)
    recording.free_element(state, element)
    _forget(outcome)


@inlined
def _drop_window(state: State, slot: int, place: int, outcome: Outcome) -> None:
    """Remove the window, which has no elements and stands at that place in the chain of its key."""
    recording.remove_from(state, slot, place, outcome)
    bookkeeping.free(state, slot)
    _forget(outcome)


@inlined
def _restore_window(state: State, slot: int, whole: FlatRecords, row: int, changes: Changes, rules: Rules) -> None:
    """Set the window, which has the row's value, to what else the row says."""
    stored, order = state.windows.versions.payloads, state.windows.order
    stored.timestamp[slot] = whole.timestamp[row]
    stored.offset[slot] = whole.offset[row]
    state.content.since[slot] = changes.since[row]
    was_open, opens = state.windows.phase[slot] != CLOSED, changes.phase[row] != CLOSED
    if was_open != opens:  # a closed window opens only if its closing is undone
        change = wide(opens) - wide(was_open)
        state.numbers[OPEN] += change
        state.numbers[OPEN_BYTES] += change * order.size[slot]
    state.windows.phase[slot] = changes.phase[row]
    order.arrival[slot] = changes.opened[row]
    time_buffer.move(order, slot, due_at(state.start[slot], state.end[slot], changes.phase[row], rules))
    recording.settle_window(state, slot)


@inlined
def _restore_element(state: State, slot: int, rows: Rows, row: int, outcome: Outcome) -> Any:
    """Add the row's element to the window, unless it is there; return DONE or what lacks room."""
    if store.find(state.elements, state.content, slot, rows.values.offset[row]) != NONE:
        return DONE
    lacking = recording.missing_room_for_element(state, rows.values, row, outcome)
    if lacking != DONE:
        return lacking
    element = recording.add_element(state, slot, rows.values, row, rows.numbers, outcome)
    state.elements.status[element] = STORED
    recording.keep_checksum(state, element)
    return DONE


@compiled_in_place
def open_holders(state: State, rows: Rows, changes: Changes, outcome: Outcome) -> Any:
    """Open a holder for each key that needs one while the rows from tally[NEXT_ROW] on are applied.

    Return DONE, or what lacks room before that row.
    """
    for row in range(outcome.tally[NEXT_ROW], len(rows.advances_to)):
        outcome.tally[NEXT_ROW] = row
        key = find_key(state.windows, rows.keys, row)
        if not _needs_holder(state, rows, row, key, changes) or _find_holder(state, key) != NONE:
            continue
        place = wide(HOLDER_PLACE)
        at = bookkeeping.entry_for(state.windows, key, place)
        lacking = bookkeeping.missing_room(state, rows.keys, row, key, at, outcome.tally, NEEDED)
        if lacking != DONE:
            return lacking
        slot = recording.open_window(state, rows.keys, row, key, place, place, place, outcome)
        state.windows.phase[slot] = HOLDER
        recording.settle_window(state, slot)
        _forget(outcome)
    outcome.tally[NEXT_ROW] = 0
    return DONE


@inlined
def _needs_holder(state: State, rows: Rows, row: int, key: int, changes: Changes) -> bool:
    """Return True if the row is that of a session with elements, or that of an element without a session."""
    if changes.arrival[row] != WINDOW:
        return bool(not changes.deleted[row] and _session_at(state, key, changes.start[row]) == NONE)
    slot = sessions.find(state, rows.keys, row, changes.start[row], changes.end[row])
    return bool(slot != NONE and state.content.length[slot] > 0)


@compiled_in_place
def replay_sessions(
    state: State, whole: FlatRecords, rows: Rows, changes: Changes, rules: Rules, outcome: Outcome
) -> Any:
    """Replace the sessions of the rows from tally[NEXT_ROW] on by what the rows say; holders get their elements.

    Return DONE, or what lacks room before that row.
    """
    for row in range(outcome.tally[NEXT_ROW], len(rows.advances_to)):
        outcome.tally[NEXT_ROW] = row
        start, end = changes.start[row], changes.end[row]
        slot = sessions.find(state, rows.keys, row, start, end)
        if slot != NONE:
            if state.content.length[slot] > 0:
                adopt(state, _find_holder(state, wide(state.windows.key[slot])), slot)
            _drop_window(state, slot, sessions.place_of(state, slot, rules), outcome)
        if changes.deleted[row]:
            continue
        key = find_key(state.windows, rows.keys, row)
        place = end + sessions.CLOSED_OFFSET if changes.phase[row] == CLOSED else start
        at = bookkeeping.entry_for(state.windows, key, place)
        lacking = bookkeeping.missing_room(state, whole, row, key, at, outcome.tally, NEEDED)
        if lacking != DONE:
            return lacking
        slot = recording.open_window(state, whole, row, key, place, start, end, outcome)
        _restore_window(state, slot, whole, row, changes, rules)
        _forget(outcome)
    outcome.tally[NEXT_ROW] = 0
    return DONE


@compiled_in_place
def replay_elements(state: State, rows: Rows, changes: Changes, outcome: Outcome) -> Any:
    """Apply the rows of sessions' elements from tally[NEXT_ROW] on; return DONE, or what lacks room before that row."""
    for row in range(outcome.tally[NEXT_ROW], len(rows.advances_to)):
        outcome.tally[NEXT_ROW] = row
        key = find_key(state.windows, rows.keys, row)
        slot = _session_at(state, key, changes.start[row])
        holder = _find_holder(state, key)
        if changes.deleted[row]:
            _delete_element(state, slot, holder, changes.arrival[row], outcome)
            continue
        lacking = _restore_element(state, slot if slot != NONE else holder, rows, row, outcome)
        if lacking != DONE:
            return lacking
        _forget(outcome)
    outcome.tally[NEXT_ROW] = 0
    return DONE


@inlined
def _delete_element(state: State, slot: int, holder: int, arrival: int, outcome: Outcome) -> None:
    """Remove the element of that arrival from the session or the holder; either may be NONE."""
    element = wide(NONE)
    if slot != NONE:
        element = store.find(state.elements, state.content, slot, arrival)
    if element == NONE and holder != NONE:
        element = store.find(state.elements, state.content, holder, arrival)
    if element != NONE:
        _drop_element(state, element, outcome)


@inlined
def _session_at(state: State, key: int, timestamp: int) -> Any:
    """Return the open session of the key that contains the timestamp; NONE if there is none."""
    if key == NONE:
        return wide(NONE)
    versions = state.windows.versions
    at = version_chains.entries_until(versions, key, timestamp) - 1
    if at < 0 or version_chains.time_at(versions, key, at) < 0:
        return wide(NONE)
    slot = version_chains.version_at(versions, key, at)
    return slot if state.end[slot] >= timestamp else wide(NONE)


@inlined
def _find_holder(state: State, key: int) -> Any:
    """Return the holder of the key; NONE if it has none."""
    if key == NONE:
        return wide(NONE)
    versions = state.windows.versions
    at = version_chains.entries_until(versions, key, wide(HOLDER_PLACE)) - 1
    if at < 0 or version_chains.time_at(versions, key, at) != HOLDER_PLACE:
        return wide(NONE)
    return version_chains.version_at(versions, key, at)


@compiled_in_place
def hand_back(state: State, holders: Array, outcome: Outcome) -> None:
    """Move each element of those holders to the session that contains it, and remove the holders that are empty."""
    for at in range(len(holders)):
        holder = wide(holders[at])
        key = wide(state.windows.key[holder])
        element = wide(state.content.first[holder])
        while element != NONE:
            after = wide(state.elements.after[element])
            slot = _session_at(state, key, state.elements.payloads.timestamp[element])
            if slot != NONE:
                store.move(state.elements, state.content, element, slot)
                recording.keep_checksum(state, element)
            element = after
        if state.content.length[holder] == 0:
            _drop_window(state, holder, wide(HOLDER_PLACE), outcome)
