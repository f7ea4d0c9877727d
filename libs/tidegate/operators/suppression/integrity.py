"""Integrity checks of a suppression state whose arrays may have been damaged outside the process.

This module checks each slot by itself; `kernels.integrity` checks the structures between slots.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import integrity
from tidegate.kernels.compiled import compiled_in_place, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD
from tidegate.operators.suppression import oldest
from tidegate.operators.suppression.step import CHECKSUM, CLOSED, State, checksum_of, stored_size


def find_damage(state: State, bytes_of_record: bool) -> str | None:
    """Return what is damaged in the state, or None. Reads all of it; to be called between two batches."""
    used, words = int(state.pool.numbers[slots.USED]), int(state.payloads.arena.numbers[arena.USED])
    held = int(state.time.numbers[HELD])
    if not (0 <= held <= used <= len(state.row) and 0 <= words <= len(state.payloads.arena.words)):
        return "its sizes are impossible"
    taken = np.zeros(max(words, 1), np.bool_)
    if not _slots_are_whole(state, bytes_of_record, taken):
        return "a record that it holds is damaged"
    if state.oldest[oldest.CHECK] != oldest.checksum(state.oldest):
        return "its bound of time is damaged"
    is_held, seen = state.time.position[:used] != NOT_HELD, np.zeros(used, np.bool_)
    if not integrity.is_in_order(state.time):
        return "the order in which it lets records go is damaged"
    if not integrity.is_indexed(state.key_index, state.fingerprint, is_held, held, seen):
        return "its index of keys is damaged"
    if not integrity.free_slots_are_whole(state.pool, is_held, held):
        return "its free slots are damaged"
    if not integrity.free_blocks_are_whole(state.payloads.arena, taken):
        return "its free space is damaged"
    return None


@compiled_in_place
def _slots_are_whole(state: State, bytes_of_record: bool, taken: Array) -> bool:
    """Return True if every slot is either empty, or held, intact and at its heap node, and the stored sums are right.

    Marks in `taken` the arena words of the slots' blocks.
    """
    held, total, checks, live, closed = 0, 0, 0, 0, 0
    for slot in range(state.pool.numbers[slots.USED]):
        if state.row[slot] != 0:
            return False
        if state.time.position[slot] == NOT_HELD:
            if state.payloads.block[slot] != 0 or state.payloads.checksum[slot] != 0:
                return False
            continue
        if not integrity.is_at_its_node(state.time, slot):
            return False
        words = integrity.take_block(state.payloads, slot, taken)
        size = stored_size(state, slot, bytes_of_record)
        if words == 0 or state.time.size[slot] != size or state.payloads.checksum[slot] != checksum_of(state, slot):
            return False
        held += 1
        closed += state.time.arrival[slot] < 0
        total += size
        live += words
        checks += wide(state.payloads.checksum[slot])
    numbers = state.time.numbers
    right = held == numbers[HELD] and total == numbers[HELD_BYTES] and checks == state.numbers[CHECKSUM]
    right = right and closed == state.numbers[CLOSED]
    return bool(right and live == state.payloads.arena.numbers[arena.LIVE])
