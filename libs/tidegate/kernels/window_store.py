"""The kernels of the window store (KIP-428): puts, which advance stream time and free expired windows, and lookups.

A window's place in the order is its start. It expires when its start is behind stream time by the retention. Windows of
a key with the same start are in order of insertion, which is their arrival number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import (
    payloads,
    time_buffer,
    version_chains,
    windows,
)
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.version_chains import NONE
from tidegate.kernels.windows import DONE, NEEDS_ARENA, Windows

STREAM_TIME, PUTS, NEXT_ROW, TAKEN, NEEDED = range(5)
NUMBERS = 5
"""T; the arrival number of the next window; for the rows to put: the next row, how many were taken, the bytes wanted.
"""


class Rules(NamedTuple):
    """The configuration as numbers."""

    retention: int
    write_grace: int
    retain_duplicates: bool


@compiled_in_place
def put_many(store: Windows, numbers: Array, batch: FlatRecords, rules: Rules) -> Any:
    """Put the rows from numbers[NEXT_ROW] on; return DONE, or which room is lacking.

    The timestamp of a row is the start of its window.
    """
    for row in range(numbers[NEXT_ROW], len(batch.timestamp)):
        numbers[NEXT_ROW] = row
        start = batch.timestamp[row]
        numbers[STREAM_TIME] = max(numbers[STREAM_TIME], start)
        expire(store, numbers[STREAM_TIME] - rules.retention)
        if start <= numbers[STREAM_TIME] - rules.write_grace:
            continue
        lacking = _put(store, numbers, batch, row, rules.retain_duplicates)
        if lacking != DONE:
            return lacking
        numbers[TAKEN] += 1
    numbers[NEXT_ROW] = len(batch.timestamp)
    return DONE


@inlined
def expire(store: Windows, until: int) -> None:
    """Free all windows that start at `until` or earlier."""
    while store.order.numbers[HELD] > 0 and store.order.place[0] <= until:
        windows.free(store, windows.take_out(store, wide(store.key[store.order.heap[0]]), 0))


@inlined
def _put(store: Windows, numbers: Array, batch: FlatRecords, row: int, retain_duplicates: bool) -> Any:
    key = version_chains.find(store.versions, batch.data, batch.key_start[row], batch.key_length[row])
    at = wide(0) if key == NONE else version_chains.entries_until(store.versions, key, batch.timestamp[row])
    there = not retain_duplicates and _starts_at(store, key, at - 1, batch.timestamp[row])
    if batch.value_length[row] < 0:
        if there:
            windows.free(store, windows.take_out(store, key, at - 1))
        return DONE
    if there:
        return _replace(store, numbers, batch, row, version_chains.version_at(store.versions, key, at - 1))
    lacking, wanted = windows.missing_room(store, key, at, payloads.record_length(batch, row))
    numbers[NEEDED] = wanted
    if lacking == DONE:
        slot = windows.open_window(store, batch, row, key, at, batch.timestamp[row])
        time_buffer.push(store.order, slot, batch.timestamp[row], numbers[PUTS], wide(0))
        numbers[PUTS] += 1
    return lacking


@inlined
def _starts_at(store: Windows, key: int, at: int, start: int) -> bool:
    return bool(key != NONE and at >= 0 and version_chains.time_at(store.versions, key, at) == start)


@inlined
def _replace(store: Windows, numbers: Array, batch: FlatRecords, row: int, slot: int) -> Any:
    """Store the row's value in the window, and return DONE, or NEEDS_ARENA if there is no room for it."""
    numbers[NEEDED] = payloads.record_length(batch, row)
    if not arena.has_room(store.versions.payloads.arena, numbers[NEEDED]):
        return NEEDS_ARENA
    payloads.store(store.versions.payloads, slot, batch, row)
    return DONE


@compiled_in_place
def fetch_many(store: Windows, batch: FlatRecords, starts: Array, lengths: Array) -> None:
    """Look up the value of each row's key and window start.

    Write to `starts` where it is in the arena (`~position`), and to `lengths` its length, -1 if there is none.
    """
    for row in range(len(starts)):
        lengths[row] = -1
        key = version_chains.find(store.versions, batch.data, batch.key_start[row], batch.key_length[row])
        if key == NONE:
            continue
        at = version_chains.entries_until(store.versions, key, batch.timestamp[row]) - 1
        if _starts_at(store, key, at, batch.timestamp[row]):
            slot = version_chains.version_at(store.versions, key, at)
            starts[row] = ~version_chains.value_start(store.versions, slot)
            lengths[row] = store.versions.payloads.value_length[slot]


@compiled_in_place
def first_and_end(store: Windows, batch: FlatRecords, first: int, last: int, found: Array) -> None:
    """Find the entries of the first row's key that start in [first, last].

    Write to `found` the slot of the key (NONE: no such key), the first of these entries, and the entry after the last
    one.
    """
    found[0] = version_chains.find(store.versions, batch.data, batch.key_start[0], batch.key_length[0])
    if found[0] != NONE:
        found[1] = version_chains.entries_until(store.versions, found[0], first - 1)
        found[2] = version_chains.entries_until(store.versions, found[0], last)


@compiled_in_place
def entries_of(store: Windows, key: int, first: int, chosen: Array) -> None:
    """Write to `chosen` the slots of the key's chain from entry `first` on."""
    for at in range(len(chosen)):
        chosen[at] = version_chains.version_at(store.versions, key, first + at)
