"""Integrity checks of a join's state whose arrays may have been damaged outside the process.

This module checks each slot by itself, and the rings of slots; `kernels.integrity` checks the other structures.
"""

from __future__ import annotations

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, integrity, payloads, time_buffer
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD
from tidegate.operators.stream_stream_join.step import (
    CHECKSUM,
    Rules,
    State,
    arrival_of,
    checksum_of,
    is_newest,
    side_of,
)


def find_damage(state: State, rules: Rules) -> str | None:
    """Return what is damaged in the state, or None. Reads all of it; to be called between two batches."""
    used, words = int(state.pool.numbers[slots.USED]), int(state.payloads.arena.numbers[arena.USED])
    held = int(state.time.numbers[HELD])
    if not (0 <= held <= used <= len(state.row) and 0 <= words <= len(state.payloads.arena.words)):
        return "its sizes are impossible"
    taken, is_held = np.zeros(max(words, 1), np.bool_), state.time.position[:used] != NOT_HELD
    if not _slots_are_whole(state, rules, taken, np.zeros(SUMS, np.int64)):
        return "a record that it holds is damaged"
    if not integrity.is_in_order(state.time):
        return "the order in which it lets records go is damaged"
    newest = np.zeros(used, np.bool_)
    if not _rings_are_whole(state, is_held, newest):
        return "the order of the records of a key is damaged"
    indexed = int(np.count_nonzero(newest))
    if not integrity.is_indexed(state.key_index, state.fingerprint, newest, indexed, np.zeros(used, np.bool_)):
        return "its index of keys is damaged"
    if not integrity.free_slots_are_whole(state.pool, is_held, held):
        return "its free slots are damaged"
    if not integrity.free_blocks_are_whole(state.payloads.arena, taken):
        return "its free space is damaged"
    return None


HELD_SUM, BYTES_SUM, CHECKS_SUM, WORDS_SUM = range(4)
SUMS = 4


@compiled_in_place
def _slots_are_whole(state: State, rules: Rules, taken: Array, sums: Array) -> bool:
    """Return True if every slot is either empty, or held, intact and at its heap node, and the stored sums are right.

    Marks in `taken` the arena words of the slots' blocks. `sums`: zeros, to add up in.
    """
    for slot in range(state.pool.numbers[slots.USED]):
        if state.row[slot] != 0:
            return False
        if state.time.position[slot] != NOT_HELD:
            if not _is_whole(state, rules, slot, taken, sums):
                return False
        elif state.payloads.block[slot] != 0 or state.payloads.checksum[slot] != 0:
            return False
    if sums[HELD_SUM] != state.time.numbers[HELD] or sums[BYTES_SUM] != state.time.numbers[HELD_BYTES]:
        return False
    live = sums[WORDS_SUM] == state.payloads.arena.numbers[arena.LIVE]
    return bool(live and sums[CHECKS_SUM] == state.numbers[CHECKSUM])


@inlined
def _is_whole(state: State, rules: Rules, slot: int, taken: Array, sums: Array) -> bool:
    """Return True if the held slot is intact and at its heap node; add it to the sums."""
    if not (integrity.is_at_its_node(state.time, slot) and _is_at_its_place(state, rules, slot)):
        return False
    words = integrity.take_block(state.payloads, slot, taken)
    size = payloads.payload_length(state.payloads, slot)
    if words == 0 or state.time.size[slot] != size or state.payloads.checksum[slot] != checksum_of(state, slot):
        return False
    sums[HELD_SUM] += 1
    sums[BYTES_SUM] += size
    sums[CHECKS_SUM] += wide(state.payloads.checksum[slot])
    sums[WORDS_SUM] += words
    return True


@inlined
def _is_at_its_place(state: State, rules: Rules, slot: int) -> bool:
    side = side_of(state, slot)
    if not (0 <= side <= 1 and 0 <= state.waits[slot] <= 1):
        return False
    if state.time.arrival[slot] != arrival_of(side, state.payloads.offset[slot]):
        return False
    stays = rules.open_for[side] if state.waits[slot] == 1 else rules.held_for
    return bool(time_buffer.place_of(state.time, slot) == state.payloads.timestamp[slot] + stays)


@compiled_in_place
def _rings_are_whole(state: State, held: Array, newest: Array) -> bool:
    """Return True if the neighbours of every held slot are held slots of its key and side, and in order.

    Marks in `newest` the newest slot of each ring. The held slots are known to be whole.
    """
    for slot in range(len(held)):
        if not held[slot]:
            continue
        older, newer = wide(state.older[slot]), wide(state.newer[slot])
        if not (0 <= older < len(held) and 0 <= newer < len(held) and held[older] and held[newer]):
            return False
        if state.newer[older] != slot or state.older[newer] != slot or not _is_same_ring(state, slot, newer):
            return False
        newest[slot] = is_newest(state, slot)
    return True


@inlined
def _is_same_ring(state: State, slot: int, other: int) -> bool:
    """Return True if both stored records have the same key and side."""
    stored = state.payloads
    length = stored.key_length[slot]
    if state.fingerprint[slot] != state.fingerprint[other] or side_of(state, slot) != side_of(state, other):
        return False
    if hash_index.fingerprint_is_exact(length):
        return True
    starts = payloads.start_of(stored, slot), payloads.start_of(stored, other)
    same = stored.key_length[other] == length
    return bool(same) and hash_index.same_bytes(stored.arena.data, starts[0], stored.arena.data, starts[1], length)
