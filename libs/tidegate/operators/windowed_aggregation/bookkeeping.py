"""The windows of a partition as they open, close and leave: what windows of aggregates and windows of elements share.

A removed window keeps its slot until the batch's tables are made, which show its key and its bounds. Until then it is a
ghost, which is in no chain.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads, time_buffer, touched, version_chains
from tidegate.kernels import windows as kernel
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import HELD, HELD_BYTES
from tidegate.kernels.touched import FREE, OPENED
from tidegate.kernels.version_chains import NONE
from tidegate.kernels.windows import DONE, Windows
from tidegate.operators.windowed_aggregation.window_times import (
    CLOSED,
    EMITTED,
    MAX,
    Rules,
    due_at,
    end_of,
    find_span,
    first_start,
    is_open,
    windows_from,
)

OPEN, OPEN_BYTES, CHECKSUM = range(3)
NUMBERS = 3
"""Number of open windows, their bytes, and the sum of the checksums of all windows."""

FULL_KEYS, FULL_BYTES = 6, 7
"""Signals of a kernel that returned because a bound of `shut_down` is reached."""


class HasWindows(Protocol):
    """The arrays of a partition with windows. Per window: its bounds; `numbers`: see OPEN."""

    @property
    def windows(self) -> Windows:
        """Return the windows."""
        ...

    @property
    def start(self) -> Array:
        """Return the start of each window."""
        ...

    @property
    def end(self) -> Array:
        """Return the end of each window."""
        ...

    @property
    def numbers(self) -> Array:
        """Return the numbers of the partition."""
        ...


def held_in_order(state: HasWindows) -> Array:
    """Return the slots of all windows, by end, arrival and start."""
    order = state.windows.order
    held = order.heap[: order.numbers[HELD]].astype(np.int64)
    return held[np.lexsort((state.start[held], order.arrival[held], state.end[held]))]


def follow_rules(state: HasWindows, stored: slice, rules: Rules) -> None:
    """Re-order the windows if other rules ordered them: those in the part `stored` of the numbers."""
    if not np.array_equal(state.numbers[stored], rules):
        state.numbers[stored] = rules
        reorder(state, rules)


@inlined
def effects_on_spans(state: HasWindows, timestamp: int, key: int, stream_time: int, rules: Rules) -> Any:
    """Return how many windows take a record of that time, and how many of them it opens."""
    first = first_start(timestamp, rules)
    taking = 0
    fresh = 0
    for hop in range(windows_from(first, timestamp, rules)):
        start = first + hop * rules.advance
        if is_open(end_of(start, rules), stream_time, rules):
            slot = find_span(state.windows, key, start)
            if slot == NONE:
                fresh += 1
            if slot == NONE or state.windows.phase[slot] != CLOSED:
                taking += 1
    return taking, fresh


@inlined
def is_bounded(rules: Rules) -> bool:
    """Return True if the open windows have a bound."""
    return bool(rules.stop_keys != MAX or rules.stop_bytes != MAX)


@inlined
def bound_reached(state: HasWindows, more: int, more_bytes: int, rules: Rules) -> Any:
    """Return DONE, or the bound that so many more open windows and bytes would exceed."""
    if state.numbers[OPEN] + more > rules.stop_keys:
        return FULL_KEYS
    return FULL_BYTES if state.numbers[OPEN_BYTES] + more_bytes > rules.stop_bytes else DONE


@inlined
def first_closing(state: HasWindows, stream_time: int) -> Any:
    """Return the first node of a walk over the open windows that are due (with final results: that close); or NONE."""
    return _unless_closed(state, time_buffer.first_due(state.windows.order, stream_time), stream_time)


@inlined
def next_closing(state: HasWindows, node: int, stream_time: int) -> Any:
    """Return the node after `node` in the walk that `first_closing` began; NONE after the last."""
    return _unless_closed(state, time_buffer.next_due(state.windows.order, node, stream_time), stream_time)


@inlined
def _unless_closed(state: HasWindows, node: int, stream_time: int) -> Any:
    order = state.windows.order
    while node != time_buffer.NONE and state.windows.phase[order.heap[node]] == CLOSED:
        node = time_buffer.next_due(order, node, stream_time)
    return node


@inlined
def missing_room(state: HasWindows, records: FlatRecords, row: int, key: int, at: int, needed: Array, name: int) -> Any:
    """Return what is missing to open a window for the row before that entry of its key's chain, or DONE.

    Write to `needed[name]` how many bytes that takes.
    """
    lacking, wanted = kernel.missing_room(state.windows, key, at, payloads.record_length(records, row))
    needed[name] = wanted
    return lacking


@inlined
def open_window(
    state: HasWindows, records: FlatRecords, row: int, key: int, at: int, start: int, end: int, size: int
) -> Any:
    """Open a window of the row's key before that entry of the key's chain; return its slot, which is to be listed."""
    slot = kernel.open_window(state.windows, records, row, key, at, start)
    state.start[slot] = start
    state.end[slot] = end
    state.windows.phase[slot] = EMITTED
    state.windows.versions.payloads.timestamp[slot] = 0
    time_buffer.push(state.windows.order, slot, wide(MAX), records.offset[row], size)
    state.numbers[OPEN] += 1
    state.numbers[OPEN_BYTES] += size
    state.windows.status[slot] = OPENED
    return slot


@inlined
def reschedule(state: HasWindows, slot: int, rules: Rules) -> None:
    """Put the window where its next event is due."""
    due = due_at(state.start[slot], state.end[slot], state.windows.phase[slot], rules)
    if due != time_buffer.place_of(state.windows.order, slot):
        time_buffer.move(state.windows.order, slot, due)


@inlined
def count_closed(state: HasWindows, slot: int) -> None:
    """Count the window as open no longer."""
    state.numbers[OPEN] -= 1
    state.numbers[OPEN_BYTES] -= state.windows.order.size[slot]


@inlined
def remove(state: HasWindows, slot: int, chained_at: int) -> bool:
    """Take the window out of the order and of its chain, where it is stored under `chained_at`; it becomes a ghost.

    Return True if it has to be listed as touched.
    """
    if state.windows.phase[slot] != CLOSED:
        count_closed(state, slot)
    at = kernel.index_of(state.windows, slot, chained_at)
    kernel.take_out(state.windows, wide(state.windows.key[slot]), at)
    return touched.remove(state.windows.status, slot)


@inlined
def free(state: HasWindows, slot: int) -> None:
    """Free the slot of a ghost."""
    payloads.set_checksum(state.windows.versions.payloads, slot, wide(0), state.numbers, CHECKSUM)
    kernel.free(state.windows, slot)
    state.windows.status[slot] = FREE


@inlined
def hash_of_window(state: HasWindows, slot: int) -> Any:
    """Return a hash of the window's bounds, phase and place in the order."""
    seed = hash_index.mix(state.start[slot] ^ state.windows.order.arrival[slot])
    return hash_index.mix(seed ^ state.end[slot] ^ wide(state.windows.phase[slot]))


@compiled_in_place
def reorder(state: HasWindows, rules: Rules) -> None:
    """Order all windows by the rules; only between batches."""
    order = state.windows.order
    held = order.numbers[HELD]
    order.numbers[HELD] = 0
    order.numbers[HELD_BYTES] = 0
    for node in range(held):
        slot = wide(order.heap[node])
        due = due_at(state.start[slot], state.end[slot], state.windows.phase[slot], rules)
        time_buffer.push(order, slot, due, order.arrival[slot], order.size[slot])


@inlined
def entry_for(windows: Windows, key: int, start: int) -> Any:
    """Return the entry of the key's chain before which a window with that start belongs."""
    return wide(0) if key == NONE else version_chains.entries_until(windows.versions, key, start)
