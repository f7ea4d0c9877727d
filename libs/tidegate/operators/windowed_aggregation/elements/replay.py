"""Kernels that apply changelog rows to windows with elements.

The row of a session's element does not say which session has the element: it has the element's timestamp as both of
its bounds, so that it need not change when sessions are merged. The element belongs to the open session of its key
that contains its timestamp. Rows may come in any order, so elements wait until all are read: per key in one window,
the *holder*, at `HOLDER_PLACE` in the chain of the key. Elements of a session whose row is written or deleted go there,
too. Then each moves to its session.
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
from tidegate.operators.windowed_aggregation.window_times import CLOSED, SESSION, Rules, due_at, find_key, find_span

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
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or what lacks room before that row.

    `whole`: keys and values.
    """
    for row in range(outcome.tally[NEXT_ROW], len(rows.advances_to)):
        outcome.tally[NEXT_ROW] = row
        if rules.kind != SESSION:
            lacking = _apply(state, whole, rows, row, changes, rules, outcome)
        elif changes.arrival[row] == WINDOW:
            lacking = _apply_to_session(state, whole, row, changes, rules, outcome)
        else:
            lacking = _apply_to_element_of_session(state, rows, row, changes, outcome)
        if lacking != DONE:
            return lacking
        _forget(outcome)
    outcome.tally[NEXT_ROW] = len(rows.advances_to)
    return DONE


@inlined
def _apply(
    state: State, whole: FlatRecords, rows: Rows, row: int, changes: Changes, rules: Rules, outcome: Outcome
) -> Any:
    """Apply the row of a window that is no session, or of its element; return DONE or what lacks room."""
    key = find_key(state.windows, rows.keys, row)
    slot = find_span(state.windows, key, changes.start[row])
    if changes.deleted[row]:
        _undo_row(state, slot, changes.arrival[row], rules, outcome)
        return DONE
    if slot == NONE:
        start = changes.start[row]
        at = bookkeeping.entry_for(state.windows, key, start)
        lacking = bookkeeping.missing_room(state, rows.keys, row, key, at, outcome.tally, NEEDED)
        if lacking != DONE:
            return lacking
        slot = recording.open_window(state, rows.keys, row, key, start, start, changes.end[row], outcome)
        recording.settle_window(state, slot)
    if changes.arrival[row] != WINDOW:
        return _restore_element(state, slot, rows, row, outcome)
    lacking = store_window(state, slot, whole, row, outcome)
    if lacking == DONE:
        _restore_window(state, slot, whole, row, changes, rules)
    return lacking


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


@inlined
def _apply_to_session(
    state: State, whole: FlatRecords, row: int, changes: Changes, rules: Rules, outcome: Outcome
) -> Any:
    """Replace the row's session by what the row says; its elements go to the holder. Return DONE or what lacks room."""
    start, end = changes.start[row], changes.end[row]
    slot = sessions.find(state, whole, row, start, end)
    if slot != NONE:
        lacking = _hand_over(state, slot, whole, row, outcome)
        if lacking != DONE:
            return lacking
        _drop_window(state, slot, sessions.place_of(state, slot, rules), outcome)
    if changes.deleted[row]:
        return DONE
    key = find_key(state.windows, whole, row)
    place = end + sessions.CLOSED_OFFSET if changes.phase[row] == CLOSED else start
    at = bookkeeping.entry_for(state.windows, key, place)
    lacking = bookkeeping.missing_room(state, whole, row, key, at, outcome.tally, NEEDED)
    if lacking != DONE:
        return lacking
    slot = recording.open_window(state, whole, row, key, place, start, end, outcome)
    _restore_window(state, slot, whole, row, changes, rules)
    return DONE


@inlined
def _hand_over(state: State, slot: int, whole: FlatRecords, row: int, outcome: Outcome) -> Any:
    """Move the elements of the row's session to the holder of its key; return DONE or what lacks room."""
    if state.content.length[slot] == 0:
        return DONE
    key = wide(state.windows.key[slot])
    lacking = _missing_room_for_holder(state, whole, row, key, outcome)
    if lacking != DONE:
        return lacking
    adopt(state, _holder(state, whole, row, key, outcome), slot)
    return DONE


@inlined
def _apply_to_element_of_session(state: State, rows: Rows, row: int, changes: Changes, outcome: Outcome) -> Any:
    """Remove the row's element, or give it to the holder unless it is there; return DONE or what lacks room."""
    key = find_key(state.windows, rows.keys, row)
    element = _find_element(state, key, changes.start[row], changes.arrival[row])
    if changes.deleted[row] or element != NONE:
        if changes.deleted[row] and element != NONE:
            _drop_element(state, element, outcome)
        return DONE
    lacking = _missing_room_for_holder(state, rows.keys, row, key, outcome)
    if lacking != DONE:
        return lacking
    return _restore_element(state, _holder(state, rows.keys, row, key, outcome), rows, row, outcome)


@inlined
def _find_element(state: State, key: int, timestamp: int, arrival: int) -> Any:
    """Return the element of that time and arrival among those of the key's sessions and holder; or NONE."""
    for slot in (_session_at(state, key, timestamp), _find_holder(state, key)):
        if slot != NONE:
            element = store.find(state.elements, state.content, slot, arrival)
            if element != NONE:
                return element
    return wide(NONE)


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


@inlined
def _missing_room_for_holder(state: State, stored: FlatRecords, row: int, key: int, outcome: Outcome) -> Any:
    """Return DONE, or what is lacking for the row's key to have a holder."""
    if _find_holder(state, key) != NONE:
        return DONE
    at = bookkeeping.entry_for(state.windows, key, wide(HOLDER_PLACE))
    return bookkeeping.missing_room(state, stored, row, key, at, outcome.tally, NEEDED)


@inlined
def _holder(state: State, stored: FlatRecords, row: int, key: int, outcome: Outcome) -> Any:
    """Return the holder of the row's key, which is opened if there is none."""
    slot = _find_holder(state, key)
    if slot == NONE:
        place = wide(HOLDER_PLACE)
        slot = recording.open_window(state, stored, row, key, place, place, place, outcome)
        state.windows.phase[slot] = HOLDER
        recording.settle_window(state, slot)
        _forget(outcome)
    return slot


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
