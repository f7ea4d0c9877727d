"""Integrity checks of a deduplication state whose arrays may have been damaged outside the process.

This module checks each slot by itself; `kernels.integrity` checks the structures between slots.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import integrity
from tidegate.kernels.compiled import compiled_in_place, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD, place_of
from tidegate.operators.deduplicate.step import CHECK, State, check_of


def find_damage(state: State) -> str | None:
    """Return what is damaged in the state, or None. Reads all of it; to be called between two batches."""
    used, words = int(state.pool.numbers[slots.USED]), int(state.payloads.arena.numbers[arena.USED])
    held = int(state.time.numbers[HELD])
    if not (0 <= held <= used <= len(state.fingerprint) and 0 <= words <= len(state.payloads.arena.words)):
        return "its sizes are impossible"
    taken, is_held = np.zeros(max(words, 1), np.bool_), state.time.position[:used] != NOT_HELD
    if not _slots_are_whole(state, taken):
        return "a key that it remembers is damaged"
    if not integrity.is_in_order(state.time):
        return "the order in which keys expire is damaged"
    if not integrity.is_indexed(state.key_index, state.fingerprint, is_held, held, np.zeros(used, np.bool_)):
        return "its index of keys is damaged"
    free = integrity.free_slots_are_whole(state.pool, is_held, held)
    if not (free and integrity.free_blocks_are_whole(state.payloads.arena, taken)):
        return "its free slots or its free space are damaged"
    return None


@compiled_in_place
def _slots_are_whole(state: State, taken: Array) -> bool:
    """Return True if every slot is either empty, or held, intact and at its heap node, and the stored sums are right.

    Marks in `taken` the arena words of the slots' blocks.
    """
    stored = state.payloads
    held = 0
    total = 0
    checks = 0
    live = 0
    for slot in range(state.pool.numbers[slots.USED]):
        if state.time.position[slot] == NOT_HELD:
            if stored.block[slot] != 0 or stored.checksum[slot] != 0:
                return False
            continue
        if not integrity.is_at_its_node(state.time, slot) or place_of(state.time, slot) != stored.timestamp[slot]:
            return False
        words = integrity.take_block(stored, slot, taken)
        if words == 0 or stored.checksum[slot] != check_of(state, slot):
            return False
        held += 1
        total += wide(stored.key_length[slot])
        live += words
        checks += wide(stored.checksum[slot])
    right = held == state.time.numbers[HELD] and total == state.time.numbers[HELD_BYTES]
    return bool(right and checks == state.numbers[CHECK] and live == stored.arena.numbers[arena.LIVE])
