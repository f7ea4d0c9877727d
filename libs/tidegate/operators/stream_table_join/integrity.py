"""Integrity checks of a join's state whose arrays may have been damaged outside the process.

This module checks each slot by itself; `kernels.integrity` checks the structures between slots.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import integrity, payloads, time_buffer
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD
from tidegate.operators.stream_table_join.step import CHECKSUM, State, checksum_of


def find_damage(state: State) -> str | None:
    """Return what is damaged in the state, or None. Reads all of it; to be called between two batches."""
    used, words = int(state.pool.numbers[slots.USED]), int(state.payloads.arena.numbers[arena.USED])
    held = int(state.time.numbers[HELD])
    if not (0 <= held <= used <= len(state.row) and 0 <= words <= len(state.payloads.arena.words)):
        return "its sizes are impossible"
    taken = np.zeros(max(words, 1), np.bool_)
    if not _slots_are_whole(state, taken):
        return "a record that it holds is damaged"
    if not integrity.is_in_order(state.time):
        return "the order in which it lets records go is damaged"
    if not integrity.free_slots_are_whole(state.pool, state.time.position[:used] != NOT_HELD, held):
        return "its free slots are damaged"
    if not integrity.free_blocks_are_whole(state.payloads.arena, taken):
        return "its free space is damaged"
    return None


@compiled_in_place
def _slots_are_whole(state: State, taken: Array) -> bool:
    """Return True if every slot is either empty, or held, intact and at its heap node, and the stored sums are right.

    Marks in `taken` the arena words of the slots' blocks.
    """
    held, total, checks, live = 0, 0, 0, 0
    for slot in range(state.pool.numbers[slots.USED]):
        if state.row[slot] != 0:
            return False
        if state.time.position[slot] == NOT_HELD:
            if state.payloads.block[slot] != 0 or state.payloads.checksum[slot] != 0:
                return False
            continue
        if not (integrity.is_at_its_node(state.time, slot) and _is_at_its_time(state, slot)):
            return False
        words = integrity.take_block(state.payloads, slot, taken)
        size = payloads.payload_length(state.payloads, slot)
        if words == 0 or state.time.size[slot] != size or state.payloads.checksum[slot] != checksum_of(state, slot):
            return False
        held += 1
        total += size
        live += words
        checks += wide(state.payloads.checksum[slot])
    numbers = state.time.numbers
    right = held == numbers[HELD] and total == numbers[HELD_BYTES] and checks == state.numbers[CHECKSUM]
    return bool(right and live == state.payloads.arena.numbers[arena.LIVE])


@inlined
def _is_at_its_time(state: State, slot: int) -> bool:
    return bool(time_buffer.place_of(state.time, slot) == state.payloads.timestamp[slot])
