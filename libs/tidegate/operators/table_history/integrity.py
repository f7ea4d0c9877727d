"""Integrity checks of a table's state whose arrays may have been damaged outside the process."""

from __future__ import annotations

from collections.abc import Iterator

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
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD
from tidegate.kernels.touched import FREE, STORED
from tidegate.kernels.version_chains import ENTRY
from tidegate.operators.table_history.step import (
    BYTES_HELD,
    CHECKSUM,
    KEYS_HELD,
    VERSIONS_HELD,
    State,
    checksum_of,
)


def find_damage(state: State, longest: int) -> str | None:
    """Return what is damaged in the state, or None. Reads all of it; to be called between two batches.

    `longest`: how many versions a key may have.
    """
    if not all(_sizes_are_possible(state)):
        return "its sizes are impossible"
    versions, numbers = state.versions, state.numbers
    records, blocks = _untaken(versions.payloads.arena), _untaken(versions.chains)
    held = np.array(state.status[: state.pool.numbers[slots.USED]] == STORED)
    held_keys = versions.capacity[: versions.keys.numbers[slots.USED]] != 0
    if not _versions_are_whole(state, records):
        return "a version that it holds is damaged"
    if not (_keys_are_whole(state, blocks, held.copy(), longest) and integrity.is_in_order(state.expiry)):
        return "the chain of a key's versions is damaged"
    seen = np.zeros(len(held_keys), np.bool_)
    if not integrity.is_indexed(versions.key_index, versions.fingerprint, held_keys, numbers[KEYS_HELD], seen):
        return "its index of keys is damaged"
    free_versions = integrity.free_slots_are_whole(state.pool, held, numbers[VERSIONS_HELD])
    if not (free_versions and integrity.free_slots_are_whole(versions.keys, held_keys, numbers[KEYS_HELD])):
        return "its free slots are damaged"
    free_records = integrity.free_blocks_are_whole(versions.payloads.arena, records)
    if not (free_records and integrity.free_blocks_are_whole(versions.chains, blocks)):
        return "its free space is damaged"
    return None


def _sizes_are_possible(state: State) -> Iterator[bool]:
    versions = state.versions
    yield bool(0 <= state.numbers[VERSIONS_HELD] <= state.pool.numbers[slots.USED] <= len(state.status))
    yield bool(0 <= state.numbers[KEYS_HELD] <= versions.keys.numbers[slots.USED] <= len(versions.length))
    yield bool(0 <= state.expiry.numbers[HELD] <= state.numbers[KEYS_HELD])
    for blocks in (versions.payloads.arena, versions.chains):
        yield bool(0 <= blocks.numbers[arena.USED] <= len(blocks.words))


def _untaken(blocks: arena.Arena) -> Array:
    return np.zeros(max(int(blocks.numbers[arena.USED]), 1), np.bool_)


@compiled_in_place
def _versions_are_whole(state: State, taken: Array) -> bool:
    """Return True if every slot has an intact version or none, and the stored sums are right.

    Marks in `taken` the arena words of the versions' blocks.
    """
    stored = state.versions.payloads
    held = 0
    total = 0
    checks = 0
    live = 0
    for version in range(state.pool.numbers[slots.USED]):
        if state.status[version] == FREE:
            if stored.block[version] != 0 or stored.checksum[version] != 0:
                return False
            continue
        words = integrity.take_block(stored, version, taken) if state.status[version] == STORED else 0
        if words == 0 or stored.checksum[version] != checksum_of(state, version):
            return False
        held += 1
        total += payloads.payload_length(stored, version)
        live += words
        checks += wide(stored.checksum[version])
    numbers = state.numbers
    right = held == numbers[VERSIONS_HELD] and total == numbers[BYTES_HELD] and checks == numbers[CHECKSUM]
    return bool(right and live == stored.arena.numbers[arena.LIVE])


@compiled_in_place
def _keys_are_whole(state: State, taken: Array, unseen: Array, longest: int) -> bool:
    """Return True if every version is once in its key's chain, in order, and every key is rightly scheduled to expire.

    Marks in `taken` the words of the chains' blocks. `unseen`: True per version; set to False where it is found.
    """
    versions = state.versions
    keys = 0
    held = 0
    live = 0
    scheduled = 0
    for key in range(versions.keys.numbers[slots.USED]):
        if versions.capacity[key] == 0:
            continue
        words = ENTRY * wide(versions.capacity[key])
        if not (
            integrity.chain_is_possible(state.versions, key, taken, longest) and _chain_is_whole(state, key, unseen)
        ):
            return False
        if not _is_scheduled(state, key):
            return False
        keys += 1
        held += versions.length[key]
        live += words
        scheduled += 1 if versions.length[key] > 1 else 0
    right = keys == state.numbers[KEYS_HELD] and held == state.numbers[VERSIONS_HELD]
    right = right and scheduled == state.expiry.numbers[HELD] and state.expiry.numbers[HELD_BYTES] == 0
    return bool(right and live == versions.chains.numbers[arena.LIVE])


@inlined
def _chain_is_whole(state: State, key: int, unseen: Array) -> bool:
    """Return True if the entries are versions of the key, in strict order of the versions' own timestamps."""
    versions = state.versions
    stored = versions.payloads
    for at in range(wide(versions.length[key])):
        version = version_chains.version_at(versions, key, at)
        if version < 0 or version >= len(unseen) or not unseen[version]:
            return False
        unseen[version] = False
        timestamp = version_chains.time_at(versions, key, at)
        if timestamp != stored.timestamp[version]:
            return False
        if at > 0 and timestamp <= version_chains.time_at(versions, key, at - 1):
            return False
        start = payloads.start_of(stored, version)
        length = wide(stored.key_length[version])
        if versions.fingerprint[key] != hash_index.fingerprint(versions.key_index, stored.arena.data, start, length):
            return False
        if not version_chains.is_key(versions, key, stored.arena.data, start, length):
            return False
    return True


@inlined
def _is_scheduled(state: State, key: int) -> bool:
    """Return True if the expiry order has the key at its second version's time and offset, or not without one."""
    versions, expiry = state.versions, state.expiry
    if versions.length[key] < 2:
        return bool(expiry.position[key] == NOT_HELD)
    if not integrity.is_at_its_node(expiry, key):
        return False
    if time_buffer.place_of(expiry, key) != version_chains.time_at(versions, key, 1):
        return False
    return bool(expiry.arrival[key] == versions.payloads.offset[version_chains.version_at(versions, key, 1)])
