"""Kernels of windows: the effect of a record, an advance, a flush or a changelog row.

Windows are ordered by the stream time at which their next event is due: first the on-time result (`on_time`), then the
closing, then the expiry. A removed window keeps its slot until the batch's tables are made, which show its key and its
bounds. Until then it is a ghost, which is in no chain. Every window that a batch touches is listed once.

A key's chain has its windows by start; `sessions` says where closed sessions stand in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import payloads, time_buffer, touched, version_chains
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.hash_index import mix
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.touched import STORED
from tidegate.kernels.version_chains import NONE
from tidegate.kernels.windows import DONE, Windows
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, LATE, TIME_ONLY, Unaccepted
from tidegate.operators.windowed_aggregation import aggregates, bookkeeping, sessions
from tidegate.operators.windowed_aggregation.aggregates import Numbers, Plan, Words
from tidegate.operators.windowed_aggregation.bookkeeping import CHECKSUM, OPEN, OPEN_BYTES
from tidegate.operators.windowed_aggregation.window_times import (
    CLOSED,
    EMITTED,
    FINAL,
    MAX,
    ON_TIME_FIRST,
    PENDING,
    SESSION,
    UPDATES,
    Rules,
    due_at,
    end_of,
    expires_next,
    find_key,
    find_span,
    first_start,
    is_open,
    windows_from,
)

CAUSES = ("update", "on_time", "window_close", "merged", "flush", "idle")
UPDATE, ON_TIME, WINDOW_CLOSE, MERGED, FLUSH, IDLE = range(6)

NEEDS_EMISSIONS, FULL_LENGTH = 5, 8
"""Signals of a kernel that returned, in addition to those of `kernels.windows` and of `bookkeeping`."""

NEXT_ROW, NEXT_START, STREAM_TIME, EMITTED_COUNT, TOUCHED, APPLIED, NEEDED = range(7)
OVERTIME_SUM, OVERTIME_MIN, OVERTIME_COUNT, OPEN_MAX, OPEN_BYTES_MAX, SUPPRESSED = range(7, 13)
TALLIES = 13
"""Tallies of a batch.

NEXT_START: if the kernel returned for lack of room in the middle of a row, the start of the window at which it resumes;
otherwise NEXT_RECORD. NEEDED: how many bytes (or emissions) were lacking when a kernel returned.
"""

STOP = 64
"""Added to the signal of a kernel, to tell it from the codes of late and rejected records."""

NEXT_RECORD = -1
WINDOW_BYTES = 16
"""Bytes that count for a window beside its key and its words: its bounds."""


class State(NamedTuple):
    """All arrays of a partition. Per window: its bounds and words; `numbers`: see OPEN."""

    windows: Windows
    start: Array
    end: Array
    words: Words
    numbers: Array


class Before(NamedTuple):
    """The touched windows as they were before the batch, in the order in which they are listed."""

    words: Array
    phase: Array
    timestamp: Array
    offset: Array


class Outcome(NamedTuple):
    """What a batch did: emissions, touched windows, late and rejected rows, and tallies.

    Per emission: slot, cause, the row after which it left, times and words. `touched`: slots; `before`: these windows
    before the batch.
    """

    slot: Array
    cause: Array
    emitted_after: Array
    timestamp: Array
    offset: Array
    words: Array
    touched: Array
    before: Before
    unaccepted: Unaccepted
    tally: Array


class Changes(NamedTuple):
    """Changelog rows, without their keys and times: whether deleted, bounds, arrivals, phases and words."""

    deleted: Array
    start: Array
    end: Array
    arrival: Array
    phase: Array
    words: Array


@compiled_in_place
def absorb(
    state: State,
    batch: FlatRecords,
    numbers: Numbers,
    missing: Array,
    newest: int,
    rules: Rules,
    plan: Plan,
    outcome: Outcome,
) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or a signal if it stopped before that row.

    `missing`: a code per row, 0 where nothing is missing. `newest`: the largest timestamp that is accepted.
    """
    tally = outcome.tally
    if tally[NEXT_START] == NEXT_RECORD:  # only new rules can make something due before a record
        pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, plan, outcome)
    for row in range(tally[NEXT_ROW], len(batch.offset)):
        tally[NEXT_ROW] = row
        timestamp = batch.timestamp[row]
        key = find_key(state.windows, batch, row)
        if tally[NEXT_START] == NEXT_RECORD:
            code = late_and_rejected.NULL_KEY
            if batch.key_length[row] >= 0:
                code = late_and_rejected.bad_timestamp(timestamp, missing[row], newest)
            code = _verdict(state, batch, row, key, code, rules, plan, outcome)
            if code > STOP:
                return code - STOP
            if code != ACCEPTED:
                late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
                continue
            tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
            tally[NEXT_START] = 0
        if rules.kind == SESSION:
            lacking = _add_to_session(state, batch, numbers, row, key, rules, plan, outcome)
        else:
            lacking = _add_to_spans(state, batch, numbers, row, key, rules, plan, outcome)
        if lacking != DONE:
            return lacking
        tally[NEXT_START] = NEXT_RECORD
        tally[APPLIED] += 1
        late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])
        pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, plan, outcome)
        tally[OPEN_MAX] = max(tally[OPEN_MAX], state.numbers[OPEN])
        tally[OPEN_BYTES_MAX] = max(tally[OPEN_BYTES_MAX], state.numbers[OPEN_BYTES])
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _verdict(
    state: State, batch: FlatRecords, row: int, key: int, code: int, rules: Rules, plan: Plan, outcome: Outcome
) -> Any:
    """Return the `code` of the row's time unless that is ACCEPTED; then ACCEPTED or LATE.

    Return a signal + STOP if emissions lack room, or if a bound is reached. A row that only passes its time on does so.
    """
    if code == TIME_ONLY:
        return _pass_time_on(state, batch.timestamp[row], rules, plan, outcome)
    if code != ACCEPTED:
        return code
    stream_time = max(outcome.tally[STREAM_TIME], batch.timestamp[row])
    if rules.kind == SESSION:
        taking, fresh, emissions = sessions.effects(state, batch.timestamp[row], key, stream_time, rules)
    else:
        taking, fresh = bookkeeping.effects_on_spans(state, batch.timestamp[row], key, stream_time, rules)
        emissions = 2 * taking
    if not taking:
        return LATE
    # The record advances time, by which each held window emits at most one result.
    if outcome.tally[EMITTED_COUNT] + emissions + state.windows.order.numbers[HELD] > len(outcome.slot):
        outcome.tally[NEEDED] = emissions
        return NEEDS_EMISSIONS + STOP
    if rules.stop_length != MAX and sessions.length(state, batch.timestamp[row], key, rules) > rules.stop_length:
        return FULL_LENGTH + STOP
    full = _full(state, batch, row, fresh, stream_time, rules, plan)
    return ACCEPTED if full == DONE else full + STOP


@inlined
def _pass_time_on(state: State, timestamp: int, rules: Rules, plan: Plan, outcome: Outcome) -> Any:
    """Let time come as far as `timestamp`; return TIME_ONLY, or NEEDS_EMISSIONS + STOP before any change."""
    tally = outcome.tally
    if tally[EMITTED_COUNT] + state.windows.order.numbers[HELD] > len(outcome.slot):
        tally[NEEDED] = 0
        return NEEDS_EMISSIONS + STOP
    tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
    pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, plan, outcome)
    return TIME_ONLY


@inlined
def _full(state: State, batch: FlatRecords, row: int, fresh: int, stream_time: int, rules: Rules, plan: Plan) -> Any:
    """Return DONE, or the bound that `fresh` more open windows would exceed.

    Open windows that are due do not count: they close first.
    """
    if not bookkeeping.is_bounded(rules):
        return DONE
    closing, closing_bytes = _closing(state, stream_time)
    size = fresh * size_of(batch.key_length[row], plan)
    return bookkeeping.bound_reached(state, fresh - closing, size - closing_bytes, rules)


@inlined
def _closing(state: State, stream_time: int) -> Any:
    """Return the number of open windows that are due (with final results: that close), and their bytes."""
    order = state.windows.order
    closing, total = 0, 0
    node = bookkeeping.first_closing(state, stream_time)
    while node != time_buffer.NONE:
        closing += 1
        total += order.size[order.heap[node]]
        node = bookkeeping.next_closing(state, node, stream_time)
    return closing, total


@inlined
def size_of(key_length: int, plan: Plan) -> Any:
    """Return the bytes that count for a window of that key."""
    return key_length + WINDOW_BYTES + 8 * plan.word[-1]


@inlined
def _add_to_spans(
    state: State, batch: FlatRecords, numbers: Numbers, row: int, key: int, rules: Rules, plan: Plan, outcome: Outcome
) -> Any:
    """Add the row's record to each window that takes it, from tally[NEXT_START] on; return DONE or what lacks room."""
    tally = outcome.tally
    timestamp = batch.timestamp[row]
    first = max(first_start(timestamp, rules), tally[NEXT_START])
    for step in range(windows_from(first, timestamp, rules)):
        start = first + step * rules.advance
        end = end_of(start, rules)
        if not is_open(end, tally[STREAM_TIME], rules):
            continue
        slot = find_span(state.windows, key, start)
        if slot == NONE:
            at = bookkeeping.entry_for(state.windows, key, start)
            lacking = bookkeeping.missing_room(state, batch, row, key, at, tally, NEEDED)
            if lacking != DONE:
                tally[NEXT_START] = start
                return lacking
            slot = _open(state, batch, row, key, at, start, end, plan, outcome)
            key = wide(state.windows.key[slot])
        elif state.windows.phase[slot] == CLOSED:
            continue
        _take(state, slot, numbers, row, batch.offset[row], timestamp, rules, plan, outcome)
    return DONE


@inlined
def _add_to_session(
    state: State, batch: FlatRecords, numbers: Numbers, row: int, key: int, rules: Rules, plan: Plan, outcome: Outcome
) -> Any:
    """Merge the row's record and all sessions that touch it into one; return DONE or what lacks room."""
    timestamp = batch.timestamp[row]
    first, last = sessions.touching(state, key, timestamp, rules)
    start = sessions.merged_start(state, key, first, last, timestamp)
    end = sessions.merged_end(state, key, first, last, timestamp)
    stays = last - first == 1 and _has_bounds(state, key, first, start, end)
    if not stays:
        lacking = bookkeeping.missing_room(state, batch, row, key, first, outcome.tally, NEEDED)
        if lacking != DONE:
            return lacking
    if start != end or not sessions.emits_at_once(end, outcome.tally[STREAM_TIME], rules):
        _retract(state, key, first, last, plan, outcome)
    if stays:
        slot = version_chains.version_at(state.windows.versions, key, first)
    else:
        slot = _open(state, batch, row, key, first, start, end, plan, outcome)
        for _ in range(first, last):
            _absorb_session(state, slot, wide(state.windows.key[slot]), first + 1, rules, plan, outcome)
    _take(state, slot, numbers, row, batch.offset[row], end, rules, plan, outcome)
    return DONE


@inlined
def _has_bounds(state: State, key: int, at: int, start: int, end: int) -> bool:
    slot = version_chains.version_at(state.windows.versions, key, at)
    return bool(state.start[slot] == start and state.end[slot] == end)


@inlined
def _retract(state: State, key: int, first: int, last: int, plan: Plan, outcome: Outcome) -> None:
    """Take back the results of those sessions that were emitted, with cause `merged`."""
    for at in range(first, last):
        slot = version_chains.version_at(state.windows.versions, key, at)
        if state.windows.phase[slot] == EMITTED:
            _emit(state, slot, wide(MERGED), plan, outcome)


@inlined
def _absorb_session(state: State, slot: int, key: int, at: int, rules: Rules, plan: Plan, outcome: Outcome) -> None:
    """Merge the session at that entry into this one and remove it; a pending result of it is suppressed."""
    other = version_chains.version_at(state.windows.versions, key, at)
    if state.windows.phase[other] == PENDING:
        outcome.tally[SUPPRESSED] += 1
    aggregates.merge(state.words, slot * plan.word[-1], other * plan.word[-1], plan)
    _remove(state, other, rules, plan, outcome)


@inlined
def _take(
    state: State,
    slot: int,
    numbers: Numbers,
    row: int,
    offset: int,
    timestamp: int,
    rules: Rules,
    plan: Plan,
    outcome: Outcome,
) -> None:
    """Add the row's record to the open window; with `emit: updates`, emit the result at once."""
    stored = state.windows.versions.payloads
    _touch(state, slot, plan, outcome)
    aggregates.add(state.words, slot * plan.word[-1], plan, numbers, row)
    stored.timestamp[slot] = max(stored.timestamp[slot], timestamp)
    stored.offset[slot] = offset
    if rules.emit == UPDATES:
        _emit(state, slot, wide(UPDATE), plan, outcome)
    else:
        mark_pending(state.windows, slot, outcome.tally)
    bookkeeping.reschedule(state, slot, rules)


@inlined
def mark_pending(windows: Windows, slot: int, tally: Array) -> None:
    """Mark the window's result as pending; if it already was, count a suppressed result."""
    if windows.phase[slot] == PENDING:
        tally[SUPPRESSED] += 1
    windows.phase[slot] = PENDING


@inlined
def pass_time(state: State, on_time: int, on_close: int, rules: Rules, plan: Plan, outcome: Outcome) -> None:
    """Process all events due at tally[STREAM_TIME]: emit results with these causes, close and expire windows."""
    order, stream_time = state.windows.order, outcome.tally[STREAM_TIME]
    while order.numbers[HELD] > 0 and order.place[0] <= stream_time:
        slot = wide(order.heap[0])
        phase = state.windows.phase[slot]
        if expires_next(phase, rules):
            _remove(state, slot, rules, plan, outcome)
            continue
        _touch(state, slot, plan, outcome)
        if phase == PENDING and rules.emit == ON_TIME_FIRST:
            _emit(state, slot, on_time, plan, outcome)
            bookkeeping.reschedule(state, slot, rules)
        else:
            if rules.emit == FINAL:
                observe_overtime(outcome.tally, stream_time - order.place[0])
                _emit(state, slot, on_close, plan, outcome)
            close(state, slot, rules)


@inlined
def close(state: State, slot: int, rules: Rules) -> None:
    """Close the open window: it takes no more records."""
    state.windows.phase[slot] = CLOSED
    bookkeeping.count_closed(state, slot)
    if rules.kind == SESSION:
        sessions.move_to_closed(state, slot)
    bookkeeping.reschedule(state, slot, rules)


@compiled_in_place
def advance(state: State, rules: Rules, plan: Plan, outcome: Outcome) -> None:
    """Process all events due at tally[STREAM_TIME], with cause `idle`."""
    pass_time(state, wide(IDLE), wide(IDLE), rules, plan, outcome)


@compiled_in_place
def flush(state: State, pending: Array, rules: Rules, plan: Plan, outcome: Outcome) -> None:
    """Emit the results of those windows; with final results, close the windows."""
    for at in range(len(pending)):
        slot = wide(pending[at])
        _touch(state, slot, plan, outcome)
        _emit(state, slot, wide(FLUSH), plan, outcome)
        if rules.emit == FINAL:
            close(state, slot, rules)
        else:
            bookkeeping.reschedule(state, slot, rules)


@inlined
def _open(
    state: State, batch: FlatRecords, row: int, key: int, at: int, start: int, end: int, plan: Plan, outcome: Outcome
) -> Any:
    """Open a window without a record before that entry of the key's chain; return its slot."""
    slot = bookkeeping.open_window(state, batch, row, key, at, start, end, size_of(batch.key_length[row], plan))
    aggregates.clear(state.words, slot * plan.word[-1], plan)
    _record_before(state, slot, plan, outcome)
    return slot


@inlined
def _emit(state: State, slot: int, cause: int, plan: Plan, outcome: Outcome) -> None:
    """Emit the window's result."""
    at = outcome.tally[EMITTED_COUNT]
    outcome.slot[at] = slot
    outcome.cause[at] = cause
    outcome.emitted_after[at] = outcome.tally[NEXT_ROW]
    outcome.timestamp[at] = state.windows.versions.payloads.timestamp[slot]
    outcome.offset[at] = state.windows.versions.payloads.offset[slot]
    width = plan.word[-1]
    for word in range(width):
        outcome.words[at * width + word] = state.words.whole[slot * width + word]
    outcome.tally[EMITTED_COUNT] += 1
    state.windows.phase[slot] = EMITTED


@inlined
def _remove(state: State, slot: int, rules: Rules, plan: Plan, outcome: Outcome) -> None:
    """Take the window out of its chain and of the order; it becomes a ghost."""
    if bookkeeping.remove(state, slot, sessions.place_of(state, slot, rules)):
        _record_before(state, slot, plan, outcome)


@inlined
def observe_overtime(tally: Array, overtime: int) -> None:
    """Count how long after it was due a final result was emitted."""
    late_and_rejected.add(tally, OVERTIME_SUM, overtime)
    tally[OVERTIME_MIN] = min(tally[OVERTIME_MIN], overtime)
    tally[OVERTIME_COUNT] += 1


@inlined
def _touch(state: State, slot: int, plan: Plan, outcome: Outcome) -> None:
    """List the window as touched, before its first change in the batch."""
    if touched.change(state.windows.status, slot):
        _record_before(state, slot, plan, outcome)


@inlined
def _record_before(state: State, slot: int, plan: Plan, outcome: Outcome) -> None:
    """Append the window to the touched ones, with what it is before the change."""
    at, before, stored = outcome.tally[TOUCHED], outcome.before, state.windows.versions.payloads
    outcome.touched[at] = slot
    before.phase[at] = state.windows.phase[slot]
    before.timestamp[at] = stored.timestamp[slot]
    before.offset[at] = stored.offset[slot]
    width = plan.word[-1]
    for word in range(width):
        before.words[at * width + word] = state.words.whole[slot * width + word]
    outcome.tally[TOUCHED] += 1


@compiled_in_place
def settle(state: State, plan: Plan, outcome: Outcome) -> None:
    """Mark each touched window as stored, or free its slot if it was removed."""
    for at in range(outcome.tally[TOUCHED]):
        slot = wide(outcome.touched[at])
        if touched.is_ghost(state.windows.status, slot):
            bookkeeping.free(state, slot)
        else:
            state.windows.status[slot] = STORED
            _keep_checksum(state, slot, plan)


@inlined
def checksum_of(state: State, slot: int, plan: Plan) -> Any:
    """Return a checksum, 32 bits, of what the slot holds: the key, the window, and its place in the order."""
    seed = bookkeeping.hash_of_window(state, slot)
    width = plan.word[-1]
    for word in range(slot * width, (slot + 1) * width):
        seed = mix(seed ^ state.words.whole[word])
    return payloads.content_hash(state.windows.versions.payloads, slot, seed) & 0xFFFFFFFF


@inlined
def _keep_checksum(state: State, slot: int, plan: Plan) -> None:
    stored = state.windows.versions.payloads
    payloads.set_checksum(stored, slot, checksum_of(state, slot, plan), state.numbers, CHECKSUM)


@compiled_in_place
def replay(state: State, batch: FlatRecords, changes: Changes, rules: Rules, plan: Plan, outcome: Outcome) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or what lacks room before that row."""
    for row in range(outcome.tally[NEXT_ROW], len(batch.offset)):
        outcome.tally[NEXT_ROW] = row
        slot = sessions.find(state, batch, row, changes.start[row], changes.end[row])
        if slot != NONE:
            _remove(state, slot, rules, plan, outcome)
            bookkeeping.free(state, slot)
            outcome.tally[TOUCHED] = 0
        if not changes.deleted[row]:
            lacking = _restore(state, batch, row, changes, rules, plan, outcome)
            if lacking != DONE:
                return lacking
    outcome.tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _restore(
    state: State, batch: FlatRecords, row: int, changes: Changes, rules: Rules, plan: Plan, outcome: Outcome
) -> Any:
    """Store the window of the row; return DONE or what lacks room."""
    versions = state.windows.versions
    key = version_chains.find(versions, batch.data, batch.key_start[row], batch.key_length[row])
    closed = changes.phase[row] == CLOSED
    place = changes.end[row] + sessions.CLOSED_OFFSET if closed and rules.kind == SESSION else changes.start[row]
    at = bookkeeping.entry_for(state.windows, key, place)
    lacking = bookkeeping.missing_room(state, batch, row, key, at, outcome.tally, NEEDED)
    if lacking != DONE:
        return lacking
    slot = _open(state, batch, row, key, at, changes.start[row], changes.end[row], plan, outcome)
    outcome.tally[TOUCHED] = 0
    state.windows.status[slot] = STORED
    state.windows.order.arrival[slot] = changes.arrival[row]
    versions.payloads.timestamp[slot] = batch.timestamp[row]
    width = plan.word[-1]
    for word in range(width):
        state.words.whole[slot * width + word] = changes.words[row * width + word]
    if closed:
        version_chains.set_time(versions, wide(state.windows.key[slot]), at, place)
        bookkeeping.count_closed(state, slot)
    state.windows.phase[slot] = changes.phase[row]
    due = due_at(state.start[slot], state.end[slot], changes.phase[row], rules)
    time_buffer.move(state.windows.order, slot, due)  # the arrival changed, even if the place did not
    _keep_checksum(state, slot, plan)
    return DONE
