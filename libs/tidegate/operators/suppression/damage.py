"""What is wrong with arrays that may have been damaged outside the process. May import: numpy, contracts, kernels.

Everything is looked at before it is used as a place in another array, so the checks end well whatever the arrays hold:
an undamaged state has exactly one form of each structure, up to the order within the index and the free chains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import arena, hash_index, payloads, slots, time_buffer
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD
from tidegate.operators.suppression.step import CHECK, State, check_of, stored_size


def damage(state: State, bytes_of_record: bool) -> str | None:
    """What is wrong with the state between two batches; None: nothing. Reads all of it."""
    used, words = int(state.pool.numbers[slots.USED]), int(state.payloads.arena.numbers[arena.USED])
    held = int(state.time.numbers[HELD])
    if not (0 <= held <= used <= len(state.row) and 0 <= words <= len(state.payloads.arena.words)):
        return "its sizes cannot be"
    taken = np.zeros(max(words, 1), np.bool_)
    if not _slots_are_whole(state, bytes_of_record, taken):
        return "a record that it holds is damaged"
    if not _is_in_order(state):
        return "the order in which it lets records go is damaged"
    if not _is_indexed(state, np.zeros(used, np.bool_)):
        return "its index of keys is damaged"
    if not (_free_slots_are_whole(state) and _free_blocks_are_whole(state.payloads.arena, taken)):
        return "its free space is damaged"
    return None


@compiled_in_place
def _slots_are_whole(state: State, bytes_of_record: bool, taken: Array) -> bool:
    """Every slot is held, whole and at its node, or empty; the sums are right. `taken`: the words of their blocks."""
    held = 0
    total = 0
    checks = 0
    live = 0
    for slot in range(state.pool.numbers[slots.USED]):
        if state.row[slot] != 0:
            return False
        if state.time.position[slot] == NOT_HELD:
            if state.payloads.block[slot] != 0 or state.payloads.check[slot] != 0:
                return False
            continue
        if not (_is_at_its_node(state, slot) and _lengths_can_be(state, slot)):
            return False
        words = _take_block(state, slot, taken)
        size = stored_size(state, slot, bytes_of_record)
        if words == 0 or state.time.size[slot] != size or state.payloads.check[slot] != check_of(state, slot):
            return False
        held += 1
        total += size
        live += words
        checks += wide(state.payloads.check[slot])
    numbers = state.time.numbers
    right = held == numbers[HELD] and total == numbers[HELD_BYTES] and checks == state.numbers[CHECK]
    return bool(right and live == state.payloads.arena.numbers[arena.LIVE])


@inlined
def _is_at_its_node(state: State, slot: int) -> bool:
    node = wide(state.time.position[slot])
    return bool(0 <= node < state.time.numbers[HELD] and state.time.heap[node] == slot)


@inlined
def _lengths_can_be(state: State, slot: int) -> bool:
    stored = state.payloads
    return bool(stored.key_length[slot] >= 0 and stored.value_length[slot] >= -1 and stored.headers_length[slot] >= 0)


@inlined
def _take_block(state: State, slot: int, taken: Array) -> Any:
    """The words of the slot's block, which nobody else has taken; 0 if that cannot be."""
    words = arena.class_words(arena.size_class(payloads.payload_length(state.payloads, slot)))
    return words if _take_words(taken, wide(state.payloads.block[slot]), words) else 0


@inlined
def _take_words(taken: Array, first: int, words: int) -> bool:
    if first < 1 or first + words > len(taken):
        return False
    free = True
    for word in range(first, first + words):
        free = free and not taken[word]
        taken[word] = True
    return free


@compiled_in_place
def _is_in_order(state: State) -> bool:
    """No node of the heap leaves before the one above it; its slots are known to be held."""
    for node in range(1, state.time.numbers[HELD]):  # noqa: SIM110 - a kernel has no generators
        if time_buffer.leaves_before_above(state.time, node):
            return False
    return True


@compiled_in_place
def _is_indexed(state: State, seen: Array) -> bool:
    """The index holds each held slot once, nothing else, and no empty place between a slot's home and its place."""
    index = state.key_index
    last_empty = len(index) - 1
    while last_empty >= 0 and index[last_empty] != 0:
        last_empty -= 1
    last_empty -= len(index)
    found = 0
    for place in range(len(index)):
        slot = wide(index[place]) - 1
        if slot == -1:
            last_empty = place
            continue
        if slot < 0 or slot >= len(seen) or seen[slot] or state.time.position[slot] == NOT_HELD:
            return False
        seen[slot] = True
        found += 1
        probed = (place - hash_index.home(index, state.fingerprint[slot])) & (len(index) - 1)
        if probed >= place - last_empty:
            return False
    return bool(found == state.time.numbers[HELD] and found < len(index))


@compiled_in_place
def _free_slots_are_whole(state: State) -> bool:
    """The chain has each slot that is not held once: a chain that ends has none twice."""
    used = state.pool.numbers[slots.USED]
    left = used - state.time.numbers[HELD]
    slot = state.pool.numbers[slots.FREE] - 1
    while left > 0 and 0 <= slot < used and state.time.position[slot] == NOT_HELD:
        left -= 1
        slot = state.pool.link[slot] - 1
    return bool(left == 0 and slot == -1)


@compiled_in_place
def _free_blocks_are_whole(blocks: arena.Arena, taken: Array) -> bool:
    """The chains have each word that no record has, and no other."""
    free = 0
    for kind in range(arena.CLASSES):
        words = arena.class_words(kind)
        first = blocks.numbers[kind]
        while first != 0:
            if words == 0 or not _take_words(taken, first, words):
                return False
            free += words
            first = blocks.words[first]
    return bool(free + blocks.numbers[arena.LIVE] == len(taken) - 1)
