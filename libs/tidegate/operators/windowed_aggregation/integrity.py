"""Integrity checks of windows, whose arrays may have been damaged outside the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import (
    hash_index,
    integrity,
    payloads,
    time_buffer,
    version_chains,
)
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.growth import MAX_SLOTS
from tidegate.kernels.time_buffer import HELD, HELD_BYTES
from tidegate.kernels.touched import FREE, STORED
from tidegate.kernels.version_chains import ENTRY
from tidegate.kernels.windows import Windows
from tidegate.operators.windowed_aggregation.aggregates import Plan, width
from tidegate.operators.windowed_aggregation.bookkeeping import CHECKSUM, OPEN, OPEN_BYTES, HasWindows
from tidegate.operators.windowed_aggregation.sessions import CLOSED_OFFSET
from tidegate.operators.windowed_aggregation.step import State, checksum_of, size_of
from tidegate.operators.windowed_aggregation.window_times import (
    CLOSED,
    SESSION,
    Rules,
    due_at,
)


def find_damage(state: State, plan: Plan, rules: Rules) -> str | None:
    """Return what is damaged in a state between two batches; None if nothing is. Reads all of the state.

    `rules`: those by which the windows were put in order.
    """
    if not all(_sizes_are_possible(state, plan)):
        return "its sizes are impossible"
    windows, versions = state.windows, state.windows.versions
    keys, blocks = no_words_taken(versions.payloads.arena), no_words_taken(versions.chains)
    if not (_windows_are_whole(state, plan, rules, keys) and integrity.is_in_order(windows.order)):
        return "a window that it holds is damaged"
    return find_damage_around(windows, (state.start, state.end), rules, keys, blocks)


def find_damage_around(
    windows: Windows, spans: tuple[Array, Array], rules: Rules, keys: Array, blocks: Array
) -> str | None:
    """Return what is damaged in the structures around windows that are each intact; None if nothing is.

    `spans`: starts and ends of the windows. `keys`: a mark per word of the keys' blocks, set where a window has it.
    `blocks`: a mark per word of the chains' blocks, none set yet.
    """
    versions = windows.versions
    held = np.array(windows.status[: windows.pool.numbers[slots.USED]] == STORED)
    held_keys = np.array(versions.capacity[: versions.keys.numbers[slots.USED]] != 0)
    if not _chains_are_whole(windows, spans, rules, blocks, held.copy()):
        return "the chain of a key's windows is damaged"
    count, seen = int(held_keys.sum()), np.zeros(len(held_keys), np.bool_)
    if not integrity.is_indexed(versions.key_index, versions.fingerprint, held_keys, count, seen):
        return "its index of keys is damaged"
    free_windows = integrity.free_slots_are_whole(windows.pool, held, int(held.sum()))
    if not (free_windows and integrity.free_slots_are_whole(versions.keys, held_keys, count)):
        return "its free slots are damaged"
    free_keys = integrity.free_blocks_are_whole(versions.payloads.arena, keys)
    if not (free_keys and integrity.free_blocks_are_whole(versions.chains, blocks)):
        return "its free space is damaged"
    return None


def _sizes_are_possible(state: State, plan: Plan) -> Iterator[bool]:
    yield from sizes_are_possible(state.windows)
    yield bool(state.windows.pool.numbers[slots.USED] <= len(state.words.whole) // width(plan))


def sizes_are_possible(windows: Windows) -> Iterator[bool]:
    """Yield for each structure whether the sizes that it states are possible in its arrays."""
    versions = windows.versions
    yield bool(0 <= windows.order.numbers[HELD] <= windows.pool.numbers[slots.USED] <= len(windows.status))
    yield bool(0 <= versions.keys.numbers[slots.USED] <= len(versions.length))
    for blocks in (versions.payloads.arena, versions.chains):
        yield bool(0 <= blocks.numbers[arena.USED] <= len(blocks.words))


def no_words_taken(blocks: Arena) -> Array:
    """Return a mark per word of the blocks, none of which is set: no word is taken."""
    return np.zeros(max(int(blocks.numbers[arena.USED]), 1), np.bool_)


@compiled_in_place
def _windows_are_whole(state: State, plan: Plan, rules: Rules, taken: Array) -> bool:
    """Return True if each slot has an intact window or none, and the sums are right.

    `taken`: a mark per word of the keys' blocks, which is set here where a window has the word.
    """
    stored, order = state.windows.versions.payloads, state.windows.order
    held, total, unclosed, unclosed_bytes, checks, live = 0, 0, 0, 0, 0, 0
    for slot in range(state.windows.pool.numbers[slots.USED]):
        if state.windows.status[slot] == FREE:
            if stored.block[slot] != 0 or stored.checksum[slot] != 0:
                return False
            continue
        words = integrity.take_block(stored, slot, taken) if state.windows.status[slot] == STORED else 0
        size = size_of(wide(stored.key_length[slot]), plan)
        if words == 0 or not is_ordered(state, slot, size, rules):
            return False
        if stored.checksum[slot] != checksum_of(state, slot, plan):
            return False
        held += 1
        total += order.size[slot]
        if state.windows.phase[slot] != CLOSED:
            unclosed += 1
            unclosed_bytes += order.size[slot]
        checks += wide(stored.checksum[slot])
        live += words
    right = held == order.numbers[HELD] and total == order.numbers[HELD_BYTES]
    right = right and unclosed == state.numbers[OPEN] and unclosed_bytes == state.numbers[OPEN_BYTES]
    return bool(right and checks == state.numbers[CHECKSUM] and live == stored.arena.numbers[arena.LIVE])


@inlined
def is_ordered(state: HasWindows, slot: int, size: int, rules: Rules) -> bool:
    """Return True if the window is at its place in the order, as the rules say, with that size."""
    order = state.windows.order
    if not integrity.is_at_its_node(order, slot):
        return False
    due = due_at(state.start[slot], state.end[slot], wide(state.windows.phase[slot]), rules)
    return bool(time_buffer.place_of(order, slot) == due and order.size[slot] == size)


@compiled_in_place
def _chains_are_whole(windows: Windows, spans: tuple[Array, Array], rules: Rules, taken: Array, unseen: Array) -> bool:
    """Return True if each window is once in the chain of its key, in order.

    `taken`: a mark per word of the chains' blocks, set here. `unseen`: a mark per window, cleared where it is found.
    """
    versions = windows.versions
    live = 0
    held = 0
    for key in range(versions.keys.numbers[slots.USED]):
        if versions.capacity[key] == 0:
            continue
        whole = integrity.chain_is_possible(versions, key, taken, MAX_SLOTS) and _chain_is_whole(
            windows, spans, rules, key, unseen
        )
        if not whole:
            return False
        live += ENTRY * wide(versions.capacity[key])
        held += wide(versions.length[key])
    return bool(live == versions.chains.numbers[arena.LIVE] and held == windows.order.numbers[HELD])


@inlined
def _chain_is_whole(windows: Windows, spans: tuple[Array, Array], rules: Rules, key: int, unseen: Array) -> bool:
    """Return True if the entries are windows of the key, each at its place and in order."""
    versions = windows.versions
    for at in range(wide(versions.length[key])):
        slot = version_chains.version_at(versions, key, at)
        if slot < 0 or slot >= len(unseen) or not unseen[slot] or windows.key[slot] != key:
            return False
        unseen[slot] = False
        time = version_chains.time_at(versions, key, at)
        if time != _place_of(windows, spans, slot, rules) or (
            at > 0 and time < version_chains.time_at(versions, key, at - 1)
        ):
            return False
        if not _has_key(windows, slot, key):
            return False
    return True


@inlined
def _place_of(windows: Windows, spans: tuple[Array, Array], slot: int, rules: Rules) -> Any:
    start, end = spans
    return end[slot] + CLOSED_OFFSET if rules.kind == SESSION and windows.phase[slot] == CLOSED else start[slot]


@inlined
def _has_key(windows: Windows, slot: int, key: int) -> bool:
    versions = windows.versions
    stored = versions.payloads
    start = payloads.start_of(stored, slot)
    length = wide(stored.key_length[slot])
    if versions.fingerprint[key] != hash_index.fingerprint(versions.key_index, stored.arena.data, start, length):
        return False
    return version_chains.is_key(versions, key, stored.arena.data, start, length)
