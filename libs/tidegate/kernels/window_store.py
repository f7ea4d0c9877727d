"""The window store's kernels (KIP-428): puts that move time and free what expires, lookups.

A window is due at its start: it expires when the start is as far behind stream time as the retention. Windows of a key
with the same start stand in order of insertion, which their arrival numbers.
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
from tidegate.kernels.payloads import Batch
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.version_chains import NONE
from tidegate.kernels.windows import DONE, NEEDS_ARENA, Windows

STREAM_TIME, PUTS, NEXT_ROW, TAKEN, WANTED = range(5)
NUMBERS = 5
"""T; the number of the next window; and of the batch of puts: the next row, how many were taken, the bytes wanted."""


class Rules(NamedTuple):
    """The configuration in numbers."""

    retention: int
    write_grace: int
    retain_duplicates: bool


@compiled_in_place
def put_many(store: Windows, numbers: Array, batch: Batch, rules: Rules) -> Any:
    """The rows from numbers[NEXT_ROW] on have had their effect (timestamp: the window's start); or room is wanted."""
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
    """No window is left that starts at `until` or earlier."""
    while store.order.numbers[HELD] > 0 and store.order.place[0] <= until:
        windows.free(store, windows.take_out(store, wide(store.key[store.order.heap[0]]), 0))


@inlined
def _put(store: Windows, numbers: Array, batch: Batch, row: int, retain_duplicates: bool) -> Any:
    key = version_chains.find(store.versions, batch.data, batch.key_start[row], batch.key_length[row])
    at = wide(0) if key == NONE else version_chains.entries_until(store.versions, key, batch.timestamp[row])
    there = not retain_duplicates and _starts_at(store, key, at - 1, batch.timestamp[row])
    if batch.value_length[row] < 0:
        if there:
            windows.free(store, windows.take_out(store, key, at - 1))
        return DONE
    if there:
        return _replace(store, numbers, batch, row, version_chains.version_at(store.versions, key, at - 1))
    lacking, wanted = windows.lacks(store, key, at, payloads.record_length(batch, row))
    numbers[WANTED] = wanted
    if lacking == DONE:
        slot = windows.open_window(store, batch, row, key, at, batch.timestamp[row])
        time_buffer.push(store.order, slot, batch.timestamp[row], numbers[PUTS], wide(0))
        numbers[PUTS] += 1
    return lacking


@inlined
def _starts_at(store: Windows, key: int, at: int, start: int) -> bool:
    return bool(key != NONE and at >= 0 and version_chains.time_at(store.versions, key, at) == start)


@inlined
def _replace(store: Windows, numbers: Array, batch: Batch, row: int, slot: int) -> Any:
    """The window holds the row's value; or there is no room for it."""
    numbers[WANTED] = payloads.record_length(batch, row)
    if not arena.has_room(store.versions.payloads.arena, numbers[WANTED]):
        return NEEDS_ARENA
    payloads.store(store.versions.payloads, slot, batch, row)
    return DONE


@compiled_in_place
def fetch_many(store: Windows, batch: Batch, starts: Array, lengths: Array) -> None:
    """Where the value of each row's key and window start is in the arena (`~position`); length -1: there is none."""
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
def first_and_end(store: Windows, batch: Batch, first: int, last: int, found: Array) -> None:
    """`found`: the slot of the first row's key and its entries that start in [first, last]; key NONE: it has none."""
    found[0] = version_chains.find(store.versions, batch.data, batch.key_start[0], batch.key_length[0])
    if found[0] != NONE:
        found[1] = version_chains.entries_until(store.versions, found[0], first - 1)
        found[2] = version_chains.entries_until(store.versions, found[0], last)


@compiled_in_place
def entries_of(store: Windows, key: int, first: int, chosen: Array) -> None:
    """`chosen` has the slots of the key's chain from that entry on."""
    for at in range(len(chosen)):
        chosen[at] = version_chains.version_at(store.versions, key, first + at)
