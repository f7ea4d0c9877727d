"""A table's kernels: what a record, an advance or a changelog row does to the versions.

A version is stored as its record is read, so that chains and payloads agree after every record. What a batch does to a
version is told by where it stands in the end; one that has expired keeps its slot until the batch's tables are made.
Every version that the batch touched is listed once.

Expiry needs no time per version: a version leaves when its successor is as old as the retention, so only the second
version of each key is looked at, and those stand in a time buffer of keys. What has expired after some records follows
from T, the readers' needs and the versions alone, so that it is enough to look once, after the last record of a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import payloads, time_buffer, version_chains
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import copy_bytes, prefetch
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import Batch
from tidegate.kernels.time_buffer import HELD, TimeBuffer
from tidegate.kernels.version_chains import AHEAD, FAR_AHEAD, NONE, Trail, Versions
from tidegate.operators import refusals
from tidegate.operators.refusals import ACCEPTED, LATE, Refused

FREE, STORED, OPENED, CHANGED, GONE, PASSED = range(6)
"""Where a version stands: its slot is free, or it is there since before the batch, opened in it, replaced in it, gone
since; or opened and gone within the batch."""

DONE, NEEDS_SLOT, NEEDS_KEY, NEEDS_ARENA, NEEDS_CHAINS, NEEDS_KEPT = range(6)
"""Why a kernel returned: all rows are read, or it wants more room."""

NEXT_ROW, STREAM_TIME, TOUCHED, APPLIED, SUPERSEDED, EXPIRED, WANTED, KEPT_BYTES, FLOOR, GIVEN_UP = range(10)
TALLIES = 10
"""WANTED: the bytes for which there was no room. KEPT_BYTES: those of the records that were replaced. FLOOR: the first
time whose versions are all kept. GIVEN_UP: versions that readers had yet to look up and that went all the same."""

LATEST = -1
"""In place of a retention: a table of latest values."""

CHECK, KEYS_HELD, VERSIONS_HELD, BYTES_HELD = range(4)
NUMBERS = 4
"""The sum of the checks of all versions, how many keys and versions there are, and the bytes of their records."""


class State(NamedTuple):
    """All of a partition's arrays. `expiry`: keys by the valid_from of their second version. `standing`: by version."""

    versions: Versions
    pool: SlotPool
    expiry: TimeBuffer
    standing: Array
    numbers: Array


class Kept(NamedTuple):
    """The records that stood before the batch in versions that it replaced: a version has no room for both.

    Per touched version where its record is in `data` (NOT_KEPT: it was not replaced), its lengths, and its times. No
    more are replaced than there are records, and those are touched first: behind them there is nothing to be kept.
    """

    data: Array
    start: Array
    key_length: Array
    value_length: Array
    headers_length: Array
    timestamp: Array
    offset: Array


NOT_KEPT = -1


class Outcome(NamedTuple):
    """What has happened: touched versions, what those held that were replaced, refused rows, and the tallies."""

    touched: Array
    kept: Kept
    refused: Refused
    tally: Array


@compiled_in_place
def absorb(
    state: State, batch: Batch, undecodable: Array, newest: int, retention: int, trail: Trail, outcome: Outcome
) -> Any:
    """The rows from tally[NEXT_ROW] on are counted and have had their effect; or it wants room before that row.

    `undecodable`: a code per row, 0 where the timestamp is known. `newest`: the largest timestamp that is taken.
    """
    tally = outcome.tally
    version_chains.take_prints(state.versions, batch.data, batch.key_start, batch.key_length, trail)
    begin = tally[NEXT_ROW]
    for row in range(begin - FAR_AHEAD, len(batch.offset)):
        version_chains.fetch_ahead(state.versions, trail, row)
        if row < begin:
            continue
        tally[NEXT_ROW] = row
        timestamp = batch.timestamp[row]
        code = _refusal(batch, row, undecodable[row], newest, retention, tally[STREAM_TIME])
        if code != ACCEPTED:
            refusals.refuse(outcome.refused, row, code, timestamp, tally[STREAM_TIME])
            continue
        key = _find(state, batch, row, trail)
        at, there = _locate(state.versions, key, timestamp, retention)
        lacking = _lacks(state, batch, row, key, at, there, outcome)
        if lacking != DONE:
            return lacking
        tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
        refusals.observe_lateness(outcome.refused, timestamp, tally[STREAM_TIME])
        tally[SUPERSEDED if there and version_chains.time_at(state.versions, key, at) == timestamp else APPLIED] += 1
        if there:
            _keep(state, version_chains.version_at(state.versions, key, at), outcome)
        version = _write(state, batch, row, key, at, there, trail)
        if not there:
            _list(outcome, version)
            state.standing[version] = OPENED
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@compiled_in_place
def replay(state: State, batch: Batch, deleted: Array, retention: int, trail: Trail, outcome: Outcome) -> Any:
    """The changelog rows from tally[NEXT_ROW] on are applied; or it wants room before that row."""
    version_chains.take_prints(state.versions, batch.data, batch.key_start, batch.key_length, trail)
    begin = outcome.tally[NEXT_ROW]
    for row in range(begin - FAR_AHEAD, len(batch.offset)):
        version_chains.fetch_ahead(state.versions, trail, row)
        if row < begin:
            continue
        outcome.tally[NEXT_ROW] = row
        key = _find(state, batch, row, trail)
        at, there = _locate(state.versions, key, batch.timestamp[row], retention)
        if deleted[row]:
            if there:
                _delete(state, key, at)
            continue
        lacking = _lacks(state, batch, row, key, at, there, outcome)
        if lacking != DONE:
            return lacking
        state.standing[_write(state, batch, row, key, at, there, trail)] = STORED
    outcome.tally[NEXT_ROW] = len(batch.offset)
    return DONE


@compiled_in_place
def expire(state: State, until: int, due: Array, outcome: Outcome) -> None:
    """No version is left whose successor is valid from `until` or earlier. `due`: room for all keys."""
    keys = _list_due(state.expiry, until, due)
    for at in range(-2 * AHEAD, keys):
        _fetch_due(state.versions, due, keys, at)
        if at >= 0:
            _expire_key(state, wide(due[at]), until, outcome)


@compiled_in_place
def held_back(state: State, until: int, due: Array) -> Any:
    """Return the bytes of the versions that `expire` would let go, those on which only readers hold."""
    versions = state.versions
    total = 0
    for at in range(_list_due(state.expiry, until, due)):
        key = wide(due[at])
        for entry in range(version_chains.entries_until(versions, key, until) - 1):
            total += payloads.payload_length(versions.payloads, version_chains.version_at(versions, key, entry))
    return total


@inlined
def _list_due(expiry: TimeBuffer, until: int, due: Array) -> Any:
    """How many keys have a second version of that time or earlier; `due` lists them."""
    count = 0
    node = 0
    walking = expiry.numbers[HELD] > 0
    while walking:
        is_due = node < expiry.numbers[HELD] and expiry.place[node] <= until
        if is_due:
            due[count] = expiry.heap[node]
            count += 1
        node = time_buffer.next_node(node, is_due)
        walking = node > 0
    return count


@inlined
def _fetch_due(versions: Versions, due: Array, keys: int, at: int) -> None:
    """The oldest entries of keys after this one are on their way into the cache."""
    if at + 2 * AHEAD < keys:
        prefetch(versions.fingerprint, due[at + 2 * AHEAD])
    if 0 <= at + AHEAD < keys:
        version_chains.fetch_first(versions, wide(due[at + AHEAD]))


@inlined
def _expire_key(state: State, key: int, until: int, outcome: Outcome) -> None:
    """The key has one version at the most that is valid from `until` or earlier."""
    versions = state.versions
    expired = version_chains.entries_until(versions, key, until) - 1
    for at in range(expired):
        version = version_chains.version_at(versions, key, at)
        standing = state.standing[version]
        if standing == STORED:
            _list(outcome, version)
        state.standing[version] = PASSED if standing == OPENED else GONE
    outcome.tally[EXPIRED] += expired
    version_chains.remove_first(versions, key, expired)
    _reschedule(state, key)


@compiled_in_place
def net_changes(state: State, outcome: Outcome, changed: Array) -> Any:
    """Fill `changed` with the places, among the touched versions, of those that the changelog tells of; return their
    number. Gone: delete; else: put."""
    count = 0
    for at in range(outcome.tally[TOUCHED]):
        version = wide(outcome.touched[at])
        if state.standing[version] != PASSED:
            changed[count] = at
            count += 1
    return count


@compiled_in_place
def settle(state: State, outcome: Outcome) -> None:
    """Every touched version is stored or free."""
    touched = outcome.tally[TOUCHED]
    for at in range(touched):
        version = wide(outcome.touched[at])
        if state.standing[version] in (GONE, PASSED):
            _drop(state, version)
        else:
            state.standing[version] = STORED


@inlined
def check_of(state: State, version: int) -> Any:
    """31 bits that say what is stored of the version."""
    return payloads.content_hash(state.versions.payloads, version, 0) & 0x7FFFFFFF


@inlined
def _refusal(batch: Batch, row: int, undecodable: int, newest: int, retention: int, stream_time: int) -> Any:
    if batch.key_length[row] < 0:
        return refusals.NULL_KEY
    code = refusals.bad_timestamp(batch.timestamp[row], undecodable, newest)
    if code == ACCEPTED and retention != LATEST and batch.timestamp[row] < stream_time - retention:
        return LATE
    return code


@inlined
def _find(state: State, batch: Batch, row: int, trail: Trail) -> Any:
    start, length = batch.key_start[row], batch.key_length[row]
    return version_chains.find_fetched(state.versions, trail, row, batch.data, start, length)


@inlined
def _locate(versions: Versions, key: int, timestamp: int, retention: int) -> Any:
    """The entry of the key's chain that the timestamp replaces, and True; or the one before which it belongs."""
    if key == NONE:
        return 0, False
    if retention == LATEST:
        return 0, True
    last = wide(versions.length[key]) - 1
    if version_chains.time_at(versions, key, last) < timestamp:
        return last + 1, False
    at = version_chains.entries_until(versions, key, timestamp)
    if at > 0 and version_chains.time_at(versions, key, at - 1) == timestamp:
        return at - 1, True
    return at, False


@inlined
def _lacks(state: State, batch: Batch, row: int, key: int, at: int, there: bool, outcome: Outcome) -> Any:
    """DONE, or what there is too little of to write the row there."""
    length = payloads.record_length(batch, row)
    if not arena.has_room(state.versions.payloads.arena, length):
        outcome.tally[WANTED] = length
        return NEEDS_ARENA
    if there:
        kept = payloads.payload_length(state.versions.payloads, version_chains.version_at(state.versions, key, at))
        if outcome.tally[KEPT_BYTES] + kept > len(outcome.kept.data):
            outcome.tally[WANTED] = kept
            return NEEDS_KEPT
        return DONE
    if not slots.has_slot(state.pool):
        return NEEDS_SLOT
    if key == NONE and not slots.has_slot(state.versions.keys):
        return NEEDS_KEY
    if not version_chains.has_room(state.versions, key, at):
        outcome.tally[WANTED] = version_chains.wanted_bytes(state.versions, key)
        return NEEDS_CHAINS
    return DONE


@inlined
def _write(state: State, batch: Batch, row: int, key: int, at: int, there: bool, trail: Trail) -> Any:
    """The version, which has the row's record: that of the entry at `at`, or a new one before it."""
    versions = state.versions
    if there:
        version = version_chains.version_at(versions, key, at)
        _store(state, version, batch, row)
        version_chains.set_time(versions, key, at, batch.timestamp[row])
    else:
        version = _new_version(state)
        _store(state, version, batch, row)
        if key == NONE:
            key = _new_key(state, trail.prints[row])
        version_chains.make_room(versions, key, at)
        version_chains.insert(versions, key, at, batch.timestamp[row], version)
    if at <= 1:
        _reschedule(state, key)
    return version


@inlined
def _new_key(state: State, fingerprint: int) -> Any:
    key = version_chains.add_key(state.versions, fingerprint)
    state.expiry.position[key] = time_buffer.NOT_HELD
    state.numbers[KEYS_HELD] += 1
    return key


@inlined
def _new_version(state: State) -> Any:
    """A version without a record; a slot that was never used is made so, whatever was in its memory."""
    unused = state.pool.numbers[slots.FREE] == 0
    version = slots.take(state.pool)
    if unused:
        state.standing[version] = FREE
        state.versions.payloads.block[version] = 0
        state.versions.payloads.check[version] = 0
    return version


@inlined
def _store(state: State, version: int, batch: Batch, row: int) -> None:
    stored = state.versions.payloads
    if stored.block[version] != 0:
        state.numbers[BYTES_HELD] -= payloads.payload_length(stored, version)
    else:
        state.numbers[VERSIONS_HELD] += 1
    payloads.store(stored, version, batch, row)
    state.numbers[BYTES_HELD] += payloads.payload_length(stored, version)
    _set_check(state, version, check_of(state, version))


@inlined
def _keep(state: State, version: int, outcome: Outcome) -> None:
    """The version is about to be replaced; if it is there since before the batch, its record is kept."""
    if state.standing[version] != STORED:
        return
    stored, kept, at, start = state.versions.payloads, outcome.kept, outcome.tally[TOUCHED], outcome.tally[KEPT_BYTES]
    _list(outcome, version)
    state.standing[version] = CHANGED
    length = payloads.payload_length(stored, version)
    kept.start[at] = start
    kept.key_length[at] = stored.key_length[version]
    kept.value_length[at] = stored.value_length[version]
    kept.headers_length[at] = stored.headers_length[version]
    kept.timestamp[at] = stored.timestamp[version]
    kept.offset[at] = stored.offset[version]
    copy_bytes(stored.arena.data, payloads.start_of(stored, version), kept.data, start, length)
    outcome.tally[KEPT_BYTES] += length


@inlined
def _list(outcome: Outcome, version: int) -> None:
    at = outcome.tally[TOUCHED]
    outcome.touched[at] = version
    if at < len(outcome.kept.start):
        outcome.kept.start[at] = NOT_KEPT
    outcome.tally[TOUCHED] += 1


@inlined
def _delete(state: State, key: int, at: int) -> None:
    """The version of that entry is gone, and the key with its last one."""
    version = version_chains.version_at(state.versions, key, at)
    version_chains.remove(state.versions, key, at)
    if at <= 1:
        _reschedule(state, key)
    if state.versions.length[key] == 0:
        version_chains.drop_key(state.versions, key)
        state.numbers[KEYS_HELD] -= 1
    _drop(state, version)


@inlined
def _drop(state: State, version: int) -> None:
    """The version's slot may be taken again."""
    stored = state.versions.payloads
    state.standing[version] = FREE
    state.numbers[VERSIONS_HELD] -= 1
    state.numbers[BYTES_HELD] -= payloads.payload_length(stored, version)
    payloads.drop(stored, version)
    _set_check(state, version, wide(0))
    slots.give_back(state.pool, version)


@inlined
def _set_check(state: State, version: int, check: int) -> None:
    checks = state.versions.payloads.check
    state.numbers[CHECK] += check - wide(checks[version])
    checks[version] = check


@inlined
def _reschedule(state: State, key: int) -> None:
    """The key stands in the order of expiry where its second version says; without one it does not."""
    versions, expiry = state.versions, state.expiry
    held = time_buffer.is_held(expiry, key)
    if versions.length[key] < 2:
        if held:
            time_buffer.remove(expiry, key)
        return
    place = version_chains.time_at(versions, key, 1)
    arrival = versions.payloads.offset[version_chains.version_at(versions, key, 1)]
    if not held:
        time_buffer.push(expiry, key, place, arrival, 0)
    elif place != time_buffer.place_of(expiry, key) or arrival != expiry.arrival[key]:
        expiry.arrival[key] = arrival
        time_buffer.move(expiry, key, place)
