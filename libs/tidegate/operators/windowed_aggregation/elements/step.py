"""Kernels of windows with elements: the effect of a record, an advance, a flush or a changelog row.

A window fires when a result is emitted: built-in evictors remove elements, the elements that are left are listed, and
evictors may remove elements again. Values are computed, and functions remove elements, in rounds between two calls of
the kernel. The kernel returns for a round when a window that waits for its removals would fire again, and when the
lists grow too long. The next call goes on where the last one returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads, time_buffer, touched
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.touched import OPENED, STORED
from tidegate.kernels.windows import DONE, NEEDS_ARENA, Windows
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, LATE, TIME_ONLY, Unaccepted
from tidegate.operators.windowed_aggregation import bookkeeping, step
from tidegate.operators.windowed_aggregation.aggregates import Numbers
from tidegate.operators.windowed_aggregation.bookkeeping import CHECKSUM, OPEN, OPEN_BYTES
from tidegate.operators.windowed_aggregation.elements import evictors, store
from tidegate.operators.windowed_aggregation.elements.evictors import AFTER, BEFORE, FUNCTION, Evictor
from tidegate.operators.windowed_aggregation.elements.store import NONE, Content, Elements
from tidegate.operators.windowed_aggregation.step import (
    APPLIED,
    EMITTED_COUNT,
    FLUSH,
    IDLE,
    NEEDED,
    NEEDS_EMISSIONS,
    NEXT_RECORD,
    NEXT_ROW,
    NEXT_START,
    ON_TIME,
    OPEN_BYTES_MAX,
    OPEN_MAX,
    STOP,
    STREAM_TIME,
    TOUCHED,
    UPDATE,
    WINDOW_BYTES,
    WINDOW_CLOSE,
)
from tidegate.operators.windowed_aggregation.window_times import (
    CLOSED,
    EMITTED,
    EVERY,
    FINAL,
    ON_TIME_FIRST,
    PENDING,
    UPDATES,
    Rules,
    due_at,
    end_of,
    find_key,
    find_span,
    first_start,
    is_open,
    windows_from,
)

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

RECORD_JOINED = -2
"""In NEXT_START: the row's record is in its windows, and time has yet to pass."""

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
    """The touched windows as they were before the batch, in the order in which they are listed."""

    since: Array
    phase: Array
    timestamp: Array
    offset: Array


class Outcome(NamedTuple):
    """What a batch did: emissions, touched windows and elements, late and rejected rows, and tallies.

    Per emission: slot, cause, times, T, and the end of its elements in `listed`. `listed`: the elements of emissions
    since the last round. `touched`: slots of windows; `before`: these windows before the batch.
    """

    slot: Array
    cause: Array
    emitted_after: Array
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
def absorb(state: State, rows: Rows, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or a signal if it stopped before they were processed."""
    tally = outcome.tally
    if tally[NEXT_START] == NEXT_RECORD:  # only new rules can make something due before a record
        lacking = pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, trigger, outcome)
        if lacking != DONE:
            return lacking
    for row in range(tally[NEXT_ROW], len(rows.advances_to)):
        tally[NEXT_ROW] = row
        key = find_key(state.windows, rows.keys, row)
        if tally[NEXT_START] == NEXT_RECORD:
            code = _verdict(state, rows, row, key, rules, trigger, outcome)
            if code > STOP:
                return code - STOP
            if code != ACCEPTED:
                late_and_rejected.note(outcome.unaccepted, row, code, rows.values.timestamp[row], tally[STREAM_TIME])
                continue
            tally[STREAM_TIME] = max(tally[STREAM_TIME], rows.advances_to[row])
            tally[NEXT_START] = 0
        if tally[NEXT_START] != RECORD_JOINED:
            lacking = _add_to_windows(state, rows, row, key, rules, trigger, outcome)
            if lacking != DONE:
                return lacking
            tally[NEXT_START] = RECORD_JOINED
        lacking = pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, trigger, outcome)
        if lacking != DONE:
            return lacking
        _count(state, rows.values.timestamp[row], outcome)
        tally[NEXT_START] = NEXT_RECORD
    tally[NEXT_ROW] = len(rows.advances_to)
    return DONE


@inlined
def _verdict(state: State, rows: Rows, row: int, key: int, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Return ACCEPTED, LATE, the code of why the record is rejected, or a signal + STOP.

    The signal is the bound that is reached, or what a window lacks to fire. A row that only passes its time on does so.
    """
    if rows.keys.key_length[row] < 0:
        return late_and_rejected.NULL_KEY
    timestamp = rows.values.timestamp[row]
    code = late_and_rejected.bad_timestamp(timestamp, rows.missing[row], rows.newest)
    if code == TIME_ONLY:
        outcome.tally[STREAM_TIME] = max(outcome.tally[STREAM_TIME], rows.advances_to[row])
        lacking = pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, trigger, outcome)
        return TIME_ONLY if lacking == DONE else lacking + STOP
    if code != ACCEPTED:
        return code
    stream_time = max(outcome.tally[STREAM_TIME], rows.advances_to[row])
    taking, fresh = bookkeeping.effects_on_spans(state, timestamp, key, stream_time, rules)
    if not taking:
        return LATE
    more = fresh * (rows.keys.key_length[row] + WINDOW_BYTES) + taking * store.size_of(rows.values.value_length[row])
    full = _full(state, fresh, more, stream_time, rules)
    return ACCEPTED if full == DONE else full + STOP


@inlined
def _full(state: State, fresh: int, more: int, stream_time: int, rules: Rules) -> Any:
    """Return DONE, or the bound that so many more windows and bytes would exceed.

    Open windows that are due do not count: they close first.
    """
    if not bookkeeping.is_bounded(rules):
        return DONE
    closing, closing_bytes = _closing(state, stream_time)
    return bookkeeping.bound_reached(state, fresh - closing, more - closing_bytes, rules)


@inlined
def _closing(state: State, stream_time: int) -> Any:
    """Return the number of open windows that are due, and their bytes with those of their elements."""
    order = state.windows.order
    closing = 0
    total = wide(0)
    node = bookkeeping.first_closing(state, stream_time)
    while node != time_buffer.NONE:
        slot = wide(order.heap[node])
        closing += 1
        total += order.size[slot] + state.content.bytes[slot]
        node = bookkeeping.next_closing(state, node, stream_time)
    return closing, total


@inlined
def _add_to_windows(
    state: State, rows: Rows, row: int, key: int, rules: Rules, trigger: Trigger, outcome: Outcome
) -> Any:
    """Add the row's record to each window that takes it, from tally[NEXT_START] on; return DONE or what is lacking."""
    tally = outcome.tally
    timestamp = rows.values.timestamp[row]
    first = max(first_start(timestamp, rules), tally[NEXT_START])
    for hop in range(windows_from(first, timestamp, rules)):
        start = first + hop * rules.advance
        end = end_of(start, rules)
        if not is_open(end, tally[STREAM_TIME], rules):
            continue
        slot = find_span(state.windows, key, start)
        if slot != NONE and state.windows.phase[slot] == CLOSED:
            continue
        lacking = _missing_room(state, rows, row, key, slot, start, rules, trigger, outcome)
        if lacking != DONE:
            tally[NEXT_START] = start
            return lacking
        if slot == NONE:
            slot = _open(state, rows.keys, row, key, start, end, outcome)
            key = wide(state.windows.key[slot])
        _take(state, slot, rows, row, rules, trigger, outcome)
    return DONE


@inlined
def _take(state: State, slot: int, rows: Rows, row: int, rules: Rules, trigger: Trigger, outcome: Outcome) -> None:
    """Add the row's record to the open window, which fires if the record makes it."""
    stored = state.windows.versions.payloads
    fires = _fires(state, slot, rules, trigger)
    _touch(state, slot, outcome)
    add_element(state, slot, rows.values, row, rows.numbers, outcome)
    state.content.since[slot] += 1
    stored.timestamp[slot] = max(stored.timestamp[slot], rows.values.timestamp[row])
    stored.offset[slot] = rows.values.offset[row]
    step.mark_pending(state.windows, slot, outcome.tally)
    if fires:
        _fire(state, slot, wide(UPDATE) if rules.emit == UPDATES else wide(EVERY_N), trigger, outcome)
    bookkeeping.reschedule(state, slot, rules)


@inlined
def _fires(state: State, slot: int, rules: Rules, trigger: Trigger) -> bool:
    """Return True if the window's next record makes it fire. NONE: a new window."""
    since = wide(0) if slot == NONE else state.content.since[slot]
    return rules.emit == UPDATES or (rules.emit == EVERY and since + 1 >= trigger.every)


@inlined
def _fire(state: State, slot: int, cause: int, trigger: Trigger, outcome: Outcome) -> None:
    """List the window's elements for an emission, and remove those that its evictor chooses."""
    tally, stored = outcome.tally, state.windows.versions.payloads
    if trigger.evictor.when == BEFORE:
        _evict(state, slot, trigger.evictor, outcome)
    at = tally[EMITTED_COUNT]
    outcome.slot[at] = slot
    outcome.cause[at] = cause
    outcome.emitted_after[at] = tally[NEXT_ROW]
    outcome.timestamp[at] = stored.timestamp[slot]
    outcome.offset[at] = stored.offset[slot]
    outcome.stream_time[at] = tally[STREAM_TIME]
    _list_elements(state, slot, outcome)
    outcome.ends[at] = tally[LISTED]
    tally[EMITTED_COUNT] += 1
    state.content.since[slot] = 0
    state.windows.phase[slot] = EMITTED
    if trigger.evictor.when == AFTER:
        _evict(state, slot, trigger.evictor, outcome)
    if trigger.evictor.kind == FUNCTION:
        state.content.eviction_pending[slot] = 1


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


@compiled_in_place
def remove_chosen(state: State, chosen: Array, outcome: Outcome) -> None:
    """Remove those elements, unless they are removed already."""
    for at in range(len(chosen)):
        element = wide(chosen[at])
        if state.elements.status[element] == STORED or state.elements.status[element] == OPENED:
            remove_element(state, element, outcome)


@compiled_in_place
def end_round(state: State, outcome: Outcome) -> None:
    """End the round: every firing has its value, and no window waits for its removals."""
    tally = outcome.tally
    for at in range(tally[ROUND], tally[EMITTED_COUNT]):
        state.content.eviction_pending[outcome.slot[at]] = 0
    tally[ROUND] = tally[EMITTED_COUNT]
    tally[LISTED] = 0
    tally[LISTED_BYTES] = 0


@inlined
def pass_time(state: State, on_time: int, on_close: int, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Process all events due at tally[STREAM_TIME]: windows fire with these causes, close and expire.

    Returns DONE, or why a window cannot fire yet.
    """
    order, stream_time = state.windows.order, outcome.tally[STREAM_TIME]
    while order.numbers[HELD] > 0 and order.place[0] <= stream_time:
        slot = wide(order.heap[0])
        phase = state.windows.phase[slot]
        if phase == CLOSED:
            _remove(state, slot, outcome)
            continue
        ends = phase == PENDING and rules.emit == ON_TIME_FIRST
        if ends or rules.emit == FINAL:
            lacking = _cannot_fire(state, slot, wide(0), outcome)
            if lacking != DONE:
                return lacking
        _touch(state, slot, outcome)
        if ends or rules.emit == FINAL:
            if not ends:
                step.observe_overtime(outcome.tally, stream_time - order.place[0])
            _fire(state, slot, on_time if ends else on_close, trigger, outcome)
        if ends:
            bookkeeping.reschedule(state, slot, rules)
        else:
            _close(state, slot, rules, outcome)
    return DONE


@inlined
def _close(state: State, slot: int, rules: Rules, outcome: Outcome) -> None:
    """Close the open window and drop its elements: it takes no more records."""
    empty(state, slot, outcome)
    state.content.since[slot] = 0
    state.windows.phase[slot] = CLOSED
    bookkeeping.count_closed(state, slot)
    bookkeeping.reschedule(state, slot, rules)


@compiled_in_place
def advance(state: State, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Process all events due at tally[STREAM_TIME], with cause `idle`; return DONE, or why a window cannot fire yet."""
    return pass_time(state, wide(IDLE), wide(IDLE), rules, trigger, outcome)


@compiled_in_place
def flush(state: State, pending: Array, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Fire those windows, from tally[NEXT_ROW] on; with final results, close them. Returns DONE or what is lacking."""
    for at in range(outcome.tally[NEXT_ROW], len(pending)):
        outcome.tally[NEXT_ROW] = at
        slot = wide(pending[at])
        lacking = _cannot_fire(state, slot, wide(0), outcome)
        if lacking != DONE:
            return lacking
        _touch(state, slot, outcome)
        _fire(state, slot, wide(FLUSH), trigger, outcome)
        if rules.emit == FINAL:
            _close(state, slot, rules, outcome)
        else:
            bookkeeping.reschedule(state, slot, rules)
    outcome.tally[NEXT_ROW] = 0
    return DONE


@inlined
def _missing_room(
    state: State,
    rows: Rows,
    row: int,
    key: int,
    slot: int,
    start: int,
    rules: Rules,
    trigger: Trigger,
    outcome: Outcome,
) -> Any:
    """Return DONE, or what is lacking for the window to take the row's record. NONE: a new window."""
    lacking = missing_room_for_element(state, rows.values, row, outcome)
    if lacking == DONE and slot == NONE:
        at = bookkeeping.entry_for(state.windows, key, start)
        lacking = bookkeeping.missing_room(state, rows.keys, row, key, at, outcome.tally, NEEDED)
    if lacking == DONE and _fires(state, slot, rules, trigger):
        lacking = _cannot_fire(state, slot, store.size_of(rows.values.value_length[row]), outcome)
    return lacking


@inlined
def missing_room_for_element(state: State, values: FlatRecords, row: int, outcome: Outcome) -> Any:
    """Return DONE, or what is lacking for the row to become an element."""
    if not store.has_slot(state.elements):
        return NEEDS_ELEMENT
    length = payloads.record_length(values, row)
    outcome.tally[NEEDED] = length
    return DONE if arena.has_room(state.elements.payloads.arena, length) else NEEDS_VALUES


@inlined
def _cannot_fire(state: State, slot: int, more: int, outcome: Outcome) -> Any:
    """Return DONE, or why the window cannot fire yet. `more`: the bytes of an element that is yet to be added, or 0."""
    tally = outcome.tally
    if tally[EMITTED_COUNT] == len(outcome.slot):
        tally[NEEDED] = 1
        return NEEDS_EMISSIONS
    count = wide(more > 0)
    size = wide(more)
    if slot != NONE:
        if state.content.eviction_pending[slot] != 0:
            return NEEDS_ROUND
        count += state.content.length[slot]
        size += state.content.bytes[slot]
    tally[NEEDED] = count
    too_many = tally[LISTED] + count > len(outcome.listed)
    return NEEDS_ROUND if too_many or (tally[LISTED] > 0 and tally[LISTED_BYTES] + size > ROUND_BYTES) else DONE


@inlined
def _open(state: State, keys: FlatRecords, row: int, key: int, start: int, end: int, outcome: Outcome) -> Any:
    """Open a window without elements; return its slot."""
    at = bookkeeping.entry_for(state.windows, key, start)
    slot = bookkeeping.open_window(state, keys, row, key, at, start, end, keys.key_length[row] + WINDOW_BYTES)
    store.clear(state.content, slot)
    _record_before(state, slot, outcome)
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
def _remove(state: State, slot: int, outcome: Outcome) -> None:
    """Take the window, which has no elements, out of its chain and of the order; it becomes a ghost."""
    if bookkeeping.remove(state, slot, state.start[slot]):
        _record_before(state, slot, outcome)


@inlined
def _touch(state: State, slot: int, outcome: Outcome) -> None:
    if touched.change(state.windows.status, slot):
        _record_before(state, slot, outcome)


@inlined
def _record_before(state: State, slot: int, outcome: Outcome) -> None:
    """Append the window to the touched ones, with what it is before the change."""
    at, before, stored = outcome.tally[TOUCHED], outcome.before, state.windows.versions.payloads
    outcome.touched[at] = slot
    before.since[at] = state.content.since[slot]
    before.phase[at] = state.windows.phase[slot]
    before.timestamp[at] = stored.timestamp[slot]
    before.offset[at] = stored.offset[slot]
    outcome.tally[TOUCHED] += 1


@inlined
def _count(state: State, timestamp: int, outcome: Outcome) -> None:
    tally = outcome.tally
    tally[APPLIED] += 1
    late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])
    tally[OPEN_MAX] = max(tally[OPEN_MAX], state.numbers[OPEN])
    tally[OPEN_BYTES_MAX] = max(tally[OPEN_BYTES_MAX], state.numbers[OPEN_BYTES])


@compiled_in_place
def keep_values(state: State, results: FlatRecords, slots: Array, outcome: Outcome) -> Any:
    """Store the values of the rows from tally[KEPT] on as the last values of those windows.

    Returns DONE or what lacks room.
    """
    for row in range(outcome.tally[KEPT], len(slots)):
        outcome.tally[KEPT] = row
        lacking = store_window(state, wide(slots[row]), results, row, outcome)
        if lacking != DONE:
            return lacking
    outcome.tally[KEPT] = 0
    return DONE


@inlined
def store_window(state: State, slot: int, whole: FlatRecords, row: int, outcome: Outcome) -> Any:
    """Store the row's key and value in the window's slot, whose times stay; return DONE or what lacks room."""
    stored = state.windows.versions.payloads
    length = payloads.record_length(whole, row)
    outcome.tally[NEEDED] = length
    if not arena.has_room(stored.arena, length):
        return NEEDS_ARENA
    timestamp, offset = stored.timestamp[slot], stored.offset[slot]
    payloads.store(stored, slot, whole, row)
    stored.timestamp[slot] = timestamp
    stored.offset[slot] = offset
    return DONE


@compiled_in_place
def settle(state: State, outcome: Outcome) -> None:
    """Mark all touched windows and elements as stored, or free the slots of those that were removed."""
    for at in range(outcome.tally[ELEMENTS_TOUCHED]):
        element = wide(outcome.touched_elements[at])
        if state.elements.status[element] == OPENED:
            state.elements.status[element] = STORED
            _keep_checksum(state, element)
        else:
            _free_element(state, element)
    for at in range(outcome.tally[TOUCHED]):
        slot = wide(outcome.touched[at])
        if touched.is_ghost(state.windows.status, slot):
            bookkeeping.free(state, slot)
        else:
            _settle_window(state, slot)


@inlined
def _settle_window(state: State, slot: int) -> None:
    state.windows.status[slot] = STORED
    payloads.set_checksum(state.windows.versions.payloads, slot, checksum_of(state, slot), state.numbers, CHECKSUM)


@inlined
def _free_element(state: State, element: int) -> None:
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
def _keep_checksum(state: State, element: int) -> None:
    stored = state.elements.payloads
    payloads.set_checksum(stored, element, checksum_of_element(state, element), state.numbers, CHECKSUM)


@compiled_in_place
def replay(state: State, whole: FlatRecords, rows: Rows, changes: Changes, rules: Rules, outcome: Outcome) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or what lacks room before that row.

    `whole`: keys and values.
    """
    for row in range(outcome.tally[NEXT_ROW], len(rows.advances_to)):
        outcome.tally[NEXT_ROW] = row
        key = find_key(state.windows, rows.keys, row)
        slot = find_span(state.windows, key, changes.start[row])
        if changes.deleted[row]:
            _undo_row(state, slot, changes.arrival[row], outcome)
            continue
        if slot == NONE:
            at = bookkeeping.entry_for(state.windows, key, changes.start[row])
            lacking = bookkeeping.missing_room(state, rows.keys, row, key, at, outcome.tally, NEEDED)
            if lacking != DONE:
                return lacking
            slot = _open(state, rows.keys, row, key, changes.start[row], changes.end[row], outcome)
            _settle_window(state, slot)
        if changes.arrival[row] == WINDOW:
            lacking = _restore_window(state, slot, whole, row, changes, rules, outcome)
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
def _undo_row(state: State, slot: int, arrival: int, outcome: Outcome) -> None:
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
    _remove(state, slot, outcome)
    bookkeeping.free(state, slot)
    _forget(outcome)


@inlined
def _drop_element(state: State, element: int, outcome: Outcome) -> None:
    remove_element(state, element, outcome)
    _free_element(state, element)
    _forget(outcome)


@inlined
def _restore_window(
    state: State, slot: int, whole: FlatRecords, row: int, changes: Changes, rules: Rules, outcome: Outcome
) -> Any:
    """Set the window to what the row says; return DONE or what lacks room."""
    stored, order = state.windows.versions.payloads, state.windows.order
    lacking = store_window(state, slot, whole, row, outcome)
    if lacking != DONE:
        return lacking
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
    _settle_window(state, slot)
    return DONE


@inlined
def _restore_element(state: State, slot: int, rows: Rows, row: int, outcome: Outcome) -> Any:
    """Add the row's element to the window, unless it is there; return DONE or what lacks room."""
    if store.find(state.elements, state.content, slot, rows.values.offset[row]) != NONE:
        return DONE
    lacking = missing_room_for_element(state, rows.values, row, outcome)
    if lacking != DONE:
        return lacking
    element = add_element(state, slot, rows.values, row, rows.numbers, outcome)
    state.elements.status[element] = STORED
    _keep_checksum(state, element)
    return DONE
