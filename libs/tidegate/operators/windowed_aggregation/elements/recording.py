"""What happens to a window with elements, or to an element of it, recorded in the outcome of the batch.

A window fires when a result is emitted: built-in evictors remove elements, the elements that are left are listed, and
evictors may remove elements again. The values are computed later, from what was listed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads, touched, version_chains
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.memory import arena
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.touched import STORED
from tidegate.kernels.windows import DONE, Windows
from tidegate.operators.late_and_rejected import Unaccepted
from tidegate.operators.windowed_aggregation import bookkeeping, sessions, step
from tidegate.operators.windowed_aggregation.aggregates import Numbers
from tidegate.operators.windowed_aggregation.bookkeeping import CHECKSUM, OPEN_BYTES
from tidegate.operators.windowed_aggregation.elements import evictors, store
from tidegate.operators.windowed_aggregation.elements.evictors import AFTER, BEFORE, FUNCTION, Evictor
from tidegate.operators.windowed_aggregation.elements.store import NONE, Content, Elements
from tidegate.operators.windowed_aggregation.step import (
    EMITTED_COUNT,
    NEEDED,
    NEEDS_EMISSIONS,
    NEXT_ROW,
    STREAM_TIME,
    TOUCHED,
    UPDATE,
    WINDOW_BYTES,
)
from tidegate.operators.windowed_aggregation.window_times import EMITTED, EVERY, UPDATES, Rules

CAUSES = (*step.CAUSES, "every")
EVERY_N = len(step.CAUSES)

NEEDS_ELEMENT, NEEDS_VALUES, NEEDS_ROUND = range(9, 12)
"""Signals in addition to those of the core `step`: no slot for an element, no room for values, a round is due."""

ROUND, LISTED, LISTED_BYTES, ELEMENTS_TOUCHED, KEPT = range(step.TALLIES, step.TALLIES + 5)
TALLIES = step.TALLIES + 5
"""ROUND: the first firing without a value. LISTED: the elements of firings from ROUND on; LISTED_BYTES: their bytes.

ELEMENTS_TOUCHED: how many elements are touched. KEPT: how many values are kept.
"""

ELEMENTS, ELEMENTS_BYTES = range(bookkeeping.NUMBERS, bookkeeping.NUMBERS + 2)
NUMBERS = bookkeeping.NUMBERS + 2
"""Numbers in addition to those of the core `step`: the elements and their bytes. OPEN_BYTES includes these bytes."""

ROUND_BYTES = 2**28
"""Bytes of the elements that one round evaluates at most, unless a single window has more."""

WINDOW = -1
"""In place of an element's arrival in a changelog row: the row is that of the window."""


class Trigger(NamedTuple):
    """When records make a window fire, and what it then loses. `every`: used with the emit mode EVERY."""

    every: int
    evictor: Evictor


class State(NamedTuple):
    """All arrays of a partition. Per window: its bounds and its content; `numbers`: see ELEMENTS."""

    windows: Windows
    start: Array
    end: Array
    content: Content
    elements: Elements
    numbers: Array


class Before(NamedTuple):
    """The touched windows as they were before the batch, in the order in which they are listed.

    `opened`: the arrival of the record that opened the window.
    """

    start: Array
    end: Array
    opened: Array
    since: Array
    phase: Array
    timestamp: Array
    offset: Array


class Outcome(NamedTuple):
    """What a batch did: emissions, touched windows and elements, late and rejected rows, and tallies.

    Per emission: slot, cause, the window's bounds, times, T, and the end of its elements in `listed`; a result that is
    taken back has none. `listed`: the elements of emissions
    since the last round. `touched`: slots of windows; `before`: these windows before the batch.
    """

    slot: Array
    cause: Array
    emitted_after: Array
    start: Array
    end: Array
    timestamp: Array
    offset: Array
    stream_time: Array
    ends: Array
    listed: Array
    touched: Array
    before: Before
    touched_elements: Array
    unaccepted: Unaccepted
    tally: Array


class Rows(NamedTuple):
    """A batch's records for the kernel.

    `keys`, `values`: the records with their keys or values alone. `advances_to`: T after each of them. `numbers`:
    what was read from them. `missing`: a code per row, 0 where nothing is missing. `newest`: the largest accepted
    timestamp.
    """

    keys: FlatRecords
    values: FlatRecords
    advances_to: Array
    numbers: Numbers
    missing: Array
    newest: int


@inlined
def fires_with(since: int, rules: Rules, trigger: Trigger) -> bool:
    """Return True if a window fires with its next record, `since` records after it last fired."""
    return bool(rules.emit == UPDATES or (rules.emit == EVERY and since + 1 >= trigger.every))


@inlined
def take(
    state: State,
    slot: int,
    rows: Rows,
    row: int,
    timestamp: int,
    fires: bool,
    rules: Rules,
    trigger: Trigger,
    outcome: Outcome,
) -> None:
    """Add the row's record to the open window, whose result then has at least that time, and which fires or not."""
    stored = state.windows.versions.payloads
    touch(state, slot, outcome)
    add_element(state, slot, rows.values, row, rows.numbers, outcome)
    state.content.since[slot] += 1
    stored.timestamp[slot] = max(stored.timestamp[slot], timestamp)
    stored.offset[slot] = rows.values.offset[row]
    step.mark_pending(state.windows, slot, outcome.tally)
    if fires:
        fire(state, slot, wide(UPDATE) if rules.emit == UPDATES else wide(EVERY_N), trigger, outcome)
    bookkeeping.reschedule(state, slot, rules)


@inlined
def fire(state: State, slot: int, cause: int, trigger: Trigger, outcome: Outcome) -> None:
    """List the window's elements for an emission, and remove those that its evictor chooses."""
    if trigger.evictor.when == BEFORE:
        _evict(state, slot, trigger.evictor, outcome)
    _list_elements(state, slot, outcome)
    emit(state, slot, cause, outcome)
    state.content.since[slot] = 0
    state.windows.phase[slot] = EMITTED
    if trigger.evictor.when == AFTER:
        _evict(state, slot, trigger.evictor, outcome)
    if trigger.evictor.kind == FUNCTION:
        state.content.eviction_pending[slot] = 1


@inlined
def emit(state: State, slot: int, cause: int, outcome: Outcome) -> None:
    """Append an emission of the window, of the elements that were listed last."""
    tally, stored = outcome.tally, state.windows.versions.payloads
    at = tally[EMITTED_COUNT]
    outcome.slot[at] = slot
    outcome.cause[at] = cause
    outcome.emitted_after[at] = tally[NEXT_ROW]
    outcome.start[at] = state.start[slot]
    outcome.end[at] = state.end[slot]
    outcome.timestamp[at] = stored.timestamp[slot]
    outcome.offset[at] = stored.offset[slot]
    outcome.stream_time[at] = tally[STREAM_TIME]
    outcome.ends[at] = tally[LISTED]
    tally[EMITTED_COUNT] += 1


@inlined
def _evict(state: State, slot: int, evictor: Evictor, outcome: Outcome) -> None:
    """Remove the window's elements that the evictor does not keep."""
    bounds = evictors.bounds_of(state.elements, state.content, slot, evictor)
    element = wide(state.content.first[slot])
    rank = 0
    while element != NONE and (evictor.kind != evictors.COUNT or rank < bounds.excess):
        after = wide(state.elements.after[element])
        if evictors.is_evicted(state.elements, element, rank, bounds, evictor):
            remove_element(state, element, outcome)
        rank += 1
        element = after


@inlined
def cannot_fire(state: State, slot: int, more: int, more_bytes: int, outcome: Outcome) -> Any:
    """Return DONE, or why the window cannot fire yet. `more`: how many elements are yet to be added."""
    if state.content.eviction_pending[slot] != 0:
        return NEEDS_ROUND
    count = wide(state.content.length[slot]) + more
    return cannot_list(count, state.content.bytes[slot] + more_bytes, wide(1), outcome)


@inlined
def cannot_list(count: int, size: int, emissions: int, outcome: Outcome) -> Any:
    """Return DONE, or why so many elements, with so many bytes, cannot be listed for so many emissions yet."""
    tally = outcome.tally
    if tally[EMITTED_COUNT] + emissions > len(outcome.slot):
        tally[NEEDED] = emissions
        return NEEDS_EMISSIONS
    tally[NEEDED] = count
    too_many = tally[LISTED] + count > len(outcome.listed)
    return NEEDS_ROUND if too_many or (tally[LISTED] > 0 and tally[LISTED_BYTES] + size > ROUND_BYTES) else DONE


@inlined
def missing_room_for_element(state: State, values: FlatRecords, row: int, outcome: Outcome) -> Any:
    """Return DONE, or what is lacking for the row to become an element."""
    if not store.has_slot(state.elements):
        return NEEDS_ELEMENT
    length = payloads.record_length(values, row)
    outcome.tally[NEEDED] = length
    return DONE if arena.has_room(state.elements.payloads.arena, length) else NEEDS_VALUES


@inlined
def open_window(
    state: State, stored: FlatRecords, row: int, key: int, place: int, start: int, end: int, outcome: Outcome
) -> Any:
    """Open a window without elements, at that place in its key's chain; return its slot."""
    at = bookkeeping.entry_for(state.windows, key, place)
    slot = bookkeeping.open_window(state, stored, row, key, at, start, end, stored.key_length[row] + WINDOW_BYTES)
    version_chains.set_time(state.windows.versions, wide(state.windows.key[slot]), at, place)
    store.clear(state.content, slot)
    record_before(state, slot, outcome)
    return slot


@inlined
def _list_elements(state: State, slot: int, outcome: Outcome) -> None:
    tally = outcome.tally
    element = wide(state.content.first[slot])
    while element != NONE:
        outcome.listed[tally[LISTED]] = element
        tally[LISTED] += 1
        element = wide(state.elements.after[element])
    tally[LISTED_BYTES] += state.content.bytes[slot]


@inlined
def add_element(state: State, slot: int, values: FlatRecords, row: int, numbers: Numbers, outcome: Outcome) -> Any:
    """Add the row to the window as an element, for which there must be room; return the element's slot."""
    element = store.append(state.elements, state.content, slot, values, row, numbers)
    size = store.size_of(values.value_length[row])
    state.numbers[ELEMENTS] += 1
    state.numbers[ELEMENTS_BYTES] += size
    state.numbers[OPEN_BYTES] += size
    _list_element(outcome, element)
    return element


@inlined
def remove_element(state: State, element: int, outcome: Outcome) -> None:
    """Take the element out of its window's list; it becomes a ghost."""
    store.unlink(state.elements, state.content, element)
    size = store.size_of(wide(state.elements.payloads.value_length[element]))
    state.numbers[ELEMENTS] -= 1
    state.numbers[ELEMENTS_BYTES] -= size
    state.numbers[OPEN_BYTES] -= size
    if touched.remove(state.elements.status, element):
        _list_element(outcome, element)


@inlined
def _list_element(outcome: Outcome, element: int) -> None:
    outcome.touched_elements[outcome.tally[ELEMENTS_TOUCHED]] = element
    outcome.tally[ELEMENTS_TOUCHED] += 1


@inlined
def empty(state: State, slot: int, outcome: Outcome) -> None:
    """Remove all elements of the window."""
    while state.content.length[slot] > 0:
        remove_element(state, wide(state.content.first[slot]), outcome)


@inlined
def remove(state: State, slot: int, rules: Rules, outcome: Outcome) -> None:
    """Take the window, which has no elements, out of its chain and of the order; it becomes a ghost."""
    remove_from(state, slot, sessions.place_of(state, slot, rules), outcome)


@inlined
def remove_from(state: State, slot: int, place: int, outcome: Outcome) -> None:
    """Take the window out of the order and of its chain, where it stands at that place; it becomes a ghost."""
    if bookkeeping.remove(state, slot, place):
        record_before(state, slot, outcome)


@inlined
def touch(state: State, slot: int, outcome: Outcome) -> None:
    """List the window as touched, before its first change in the batch."""
    if touched.change(state.windows.status, slot):
        record_before(state, slot, outcome)


@inlined
def record_before(state: State, slot: int, outcome: Outcome) -> None:
    """Append the window to the touched ones, with what it is before the change."""
    at, before, stored = outcome.tally[TOUCHED], outcome.before, state.windows.versions.payloads
    outcome.touched[at] = slot
    before.start[at] = state.start[slot]
    before.end[at] = state.end[slot]
    before.opened[at] = state.windows.order.arrival[slot]
    before.since[at] = state.content.since[slot]
    before.phase[at] = state.windows.phase[slot]
    before.timestamp[at] = stored.timestamp[slot]
    before.offset[at] = stored.offset[slot]
    outcome.tally[TOUCHED] += 1


@inlined
def settle_window(state: State, slot: int) -> None:
    """Mark the window as stored, and update its checksum."""
    state.windows.status[slot] = STORED
    payloads.set_checksum(state.windows.versions.payloads, slot, checksum_of(state, slot), state.numbers, CHECKSUM)


@inlined
def free_element(state: State, element: int) -> None:
    """Free the slot of an element that is in no list."""
    payloads.set_checksum(state.elements.payloads, element, wide(0), state.numbers, CHECKSUM)
    store.free(state.elements, element)


@inlined
def checksum_of(state: State, slot: int) -> Any:
    """Return a checksum, 32 bits, of what the window's slot holds, without its elements."""
    seed = hash_index.mix(bookkeeping.hash_of_window(state, slot) ^ state.content.since[slot])
    return payloads.content_hash(state.windows.versions.payloads, slot, seed) & 0xFFFFFFFF


@inlined
def checksum_of_element(state: State, element: int) -> Any:
    """Return a checksum, 32 bits, of what the element's slot holds."""
    elements = state.elements
    seed = hash_index.mix(wide(elements.window[element]))
    for at in range(element * elements.width, (element + 1) * elements.width):
        seed = hash_index.mix(seed ^ elements.whole[at] ^ wide(elements.is_double[at]))
    return payloads.content_hash(elements.payloads, element, seed) & 0xFFFFFFFF


@inlined
def keep_checksum(state: State, element: int) -> None:
    """Update the checksum of the element, which is stored."""
    stored = state.elements.payloads
    payloads.set_checksum(stored, element, checksum_of_element(state, element), state.numbers, CHECKSUM)
