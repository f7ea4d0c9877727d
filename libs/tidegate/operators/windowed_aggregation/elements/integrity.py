"""Integrity checks of windows with elements, whose arrays may have been damaged outside the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import integrity
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.time_buffer import HELD, HELD_BYTES
from tidegate.kernels.touched import FREE, STORED
from tidegate.operators.windowed_aggregation.bookkeeping import CHECKSUM, OPEN, OPEN_BYTES
from tidegate.operators.windowed_aggregation.elements import store
from tidegate.operators.windowed_aggregation.elements.recording import (
    ELEMENTS,
    ELEMENTS_BYTES,
    State,
    checksum_of,
    checksum_of_element,
)
from tidegate.operators.windowed_aggregation.elements.store import NONE
from tidegate.operators.windowed_aggregation.integrity import (
    find_damage_around,
    is_ordered,
    no_words_taken,
    sizes_are_possible,
)
from tidegate.operators.windowed_aggregation.step import WINDOW_BYTES
from tidegate.operators.windowed_aggregation.window_times import CLOSED, SESSION, Rules

CHECKSUMS, LIVE = range(2)
"""Sums over all elements that the check of the windows needs: their checksums, and the words of their values."""


def find_damage(state: State, rules: Rules) -> str | None:
    """Return what is damaged in a state between two batches; None if nothing is. Reads all of the state.

    `rules`: those by which the windows were put in order.
    """
    if not all(_sizes_are_possible(state)):
        return "its sizes are impossible"
    stored, chains = state.windows.versions.payloads, state.windows.versions.chains
    keys, blocks, values = (no_words_taken(found) for found in (stored.arena, chains, state.elements.payloads.arena))
    sums = np.zeros(2, np.int64)
    if not _elements_are_whole(state, values, sums):
        return "an element that it holds is damaged"
    if not (_windows_are_whole(state, rules, keys, sums) and integrity.is_in_order(state.windows.order)):
        return "a window that it holds is damaged"
    return find_damage_around(state.windows, (state.start, state.end), rules, keys, blocks) or _free_elements(
        state, values
    )


def _sizes_are_possible(state: State) -> Iterator[bool]:
    yield from sizes_are_possible(state.windows)
    elements = state.elements
    yield bool(0 <= state.numbers[ELEMENTS] <= elements.pool.numbers[slots.USED] <= len(elements.status))
    yield bool(0 <= elements.payloads.arena.numbers[arena.USED] <= len(elements.payloads.arena.words))


def _free_elements(state: State, values: Array) -> str | None:
    elements = state.elements
    held = np.array(elements.status[: elements.pool.numbers[slots.USED]] == STORED)
    if not integrity.free_slots_are_whole(elements.pool, held, int(held.sum())):
        return "its free slots are damaged"
    return None if integrity.free_blocks_are_whole(elements.payloads.arena, values) else "its free space is damaged"


@compiled_in_place
def _elements_are_whole(state: State, taken: Array, sums: Array) -> bool:
    """Return True if each slot has an intact element or none.

    `taken`: a mark per word of the values' blocks, which is set here where an element has the word.
    """
    stored = state.elements.payloads
    live = 0
    checks = 0
    for element in range(state.elements.pool.numbers[slots.USED]):
        if state.elements.status[element] == FREE:
            if stored.block[element] != 0 or stored.checksum[element] != 0:
                return False
            continue
        words = integrity.take_block(stored, element, taken) if state.elements.status[element] == STORED else 0
        if words == 0 or stored.key_length[element] != 0 or stored.headers_length[element] != 0:
            return False
        if stored.checksum[element] != checksum_of_element(state, element):
            return False
        live += words
        checks += wide(stored.checksum[element])
    sums[CHECKSUMS] = checks
    sums[LIVE] = live
    return bool(live == stored.arena.numbers[arena.LIVE])


@compiled_in_place
def _windows_are_whole(state: State, rules: Rules, taken: Array, sums: Array) -> bool:
    """Return True if each slot has an intact window with its elements or none, and the sums are right.

    `taken`: a mark per word of the keys' blocks, which is set here where a window has the word.
    """
    stored, order = state.windows.versions.payloads, state.windows.order
    held, total, unclosed, unclosed_bytes, live, elements, elements_bytes = 0, 0, 0, 0, 0, 0, 0
    checks = sums[CHECKSUMS]
    for slot in range(state.windows.pool.numbers[slots.USED]):
        if state.windows.status[slot] == FREE:
            if stored.block[slot] != 0 or stored.checksum[slot] != 0:
                return False
            continue
        words = integrity.take_block(stored, slot, taken) if state.windows.status[slot] == STORED else 0
        size = wide(stored.key_length[slot]) + WINDOW_BYTES
        if words == 0 or not is_ordered(state, slot, size, rules) or not _list_is_whole(state, slot, rules):
            return False
        if stored.checksum[slot] != checksum_of(state, slot):
            return False
        held += 1
        total += order.size[slot]
        elements += state.content.length[slot]
        elements_bytes += state.content.bytes[slot]
        if state.windows.phase[slot] != CLOSED:
            unclosed += 1
            unclosed_bytes += order.size[slot] + state.content.bytes[slot]
        checks += wide(stored.checksum[slot])
        live += words
    right = held == order.numbers[HELD] and total == order.numbers[HELD_BYTES]
    right = right and elements == state.numbers[ELEMENTS] and elements_bytes == state.numbers[ELEMENTS_BYTES]
    right = right and unclosed == state.numbers[OPEN] and unclosed_bytes == state.numbers[OPEN_BYTES]
    right = right and elements == _stored_elements(state)
    return bool(right and checks == state.numbers[CHECKSUM] and live == stored.arena.numbers[arena.LIVE])


@inlined
def _list_is_whole(state: State, slot: int, rules: Rules) -> bool:
    """Return True if the window's list has the elements that it counts, all its own, in order of arrival.

    Those of a session are in it by their times, too.
    """
    content, elements = state.content, state.elements
    if content.eviction_pending[slot] != 0 or content.length[slot] < 0 or content.since[slot] < 0:
        return False
    used = elements.pool.numbers[slots.USED]
    before = wide(NONE)
    element = wide(content.first[slot])
    size = wide(0)
    for _ in range(content.length[slot]):
        if element < 0 or element >= used or elements.status[element] != STORED:
            return False
        if elements.window[element] != slot or elements.before[element] != before:
            return False
        if before != NONE and elements.payloads.offset[before] >= elements.payloads.offset[element]:
            return False
        timestamp = elements.payloads.timestamp[element]
        if rules.kind == SESSION and not state.start[slot] <= timestamp <= state.end[slot]:
            return False
        size += store.size_of(wide(elements.payloads.value_length[element]))
        before = element
        element = wide(elements.after[element])
    return bool(element == NONE and content.last[slot] == before and content.bytes[slot] == size)


@inlined
def _stored_elements(state: State) -> Any:
    count = 0
    for element in range(state.elements.pool.numbers[slots.USED]):
        if state.elements.status[element] == STORED:
            count += 1
    return count
