"""Windows of keys: a chain per key in order of the windows' starts, and an order in which windows become due.

The window store and windowed aggregation both keep their windows this way. A window has one slot: a version in
`version_chains`, valid from the window's start, and an entry of the time buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import SEED, Array, ArraySpec, Storage
from tidegate.kernels import (
    hash_index,
    payloads,
    time_buffer,
    version_chains,
)
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import arena, growth, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Payloads
from tidegate.kernels.time_buffer import TimeBuffer
from tidegate.kernels.version_chains import NONE, Versions

DONE, NEEDS_SLOT, NEEDS_KEY, NEEDS_CHAINS, NEEDS_ARENA = range(5)
"""Why a kernel returned: all rows are read, or it needs more room."""

SLOT = np.dtype(
    [
        *((name, "i8") for name in ("timestamp", "offset", "checksum", "arrival")),
        *((name, "i4") for name in ("block", "key_length", "value_length", "headers_length")),
        *((name, "i4") for name in ("size", "key", "status", "phase")),
    ]
)
"""The fields of a window lie side by side in one cache line. Heap positions are apart: the heap moves many at once."""

KEY = np.dtype([("fingerprint", "i8"), *((name, "i4") for name in ("block", "first", "length", "capacity"))])

# Each layout lists its arrays in full, though some are alike: the list is the format on disk.
ARRAYS = (
    ArraySpec("order_numbers", "int64", "fixed", time_buffer.NUMBERS),
    ArraySpec("pool_numbers", "int64", "fixed", slots.NUMBERS),
    ArraySpec("keys_numbers", "int64", "fixed", slots.NUMBERS),
    ArraySpec("chains_numbers", "int64", "fixed", arena.NUMBERS),
    ArraySpec("arena_numbers", "int64", "fixed", arena.NUMBERS),
    ArraySpec("slot", "int64", "slots", SLOT.itemsize // 8),
    ArraySpec("position", "int32", "slots"),
    ArraySpec("heap", "int32", "slots"),
    ArraySpec("place", "int64", "slots"),
    ArraySpec("key", "int64", "keys", KEY.itemsize // 8),
    ArraySpec("index", "int32", "index"),
    SEED,
    ArraySpec("chains", "uint8", "chains"),
    ArraySpec("arena", "uint8", "arena"),
)
CAPACITY = {"fixed": 1, "slots": 2048, "keys": 2048, "index": 4096, "chains": 65536, "arena": 65536}


class Windows(NamedTuple):
    """All windows of a partition. Per window: its key's slot, and `status` and `phase`, which its owner defines."""

    versions: Versions
    pool: SlotPool
    order: TimeBuffer
    key: Array
    status: Array
    phase: Array


def windows_of(arrays: Mapping[str, Array]) -> Windows:
    """Return the arrays of a storage as kernels take them."""
    slot, key = arrays["slot"].view(SLOT), arrays["key"].view(KEY)
    stored = Payloads(_blocks(arrays, "arena"), *(slot[name] for name in Payloads._fields[1:]))
    return Windows(
        Versions(
            np.zeros(version_chains.NUMBERS, np.int64),
            Index(arrays["index"], arrays["seed"]),
            SlotPool(arrays["keys_numbers"], key["fingerprint"]),
            key["fingerprint"],
            key["block"],
            key["first"],
            key["length"],
            key["capacity"],
            _blocks(arrays, "chains"),
            stored,
        ),
        SlotPool(arrays["pool_numbers"], slot["arrival"]),
        TimeBuffer(
            arrays["order_numbers"],
            arrays["heap"],
            arrays["place"],
            arrays["position"],
            slot["arrival"],
            slot["size"],
        ),
        slot["key"],
        slot["status"],
        slot["phase"],
    )


def _blocks(arrays: Mapping[str, Array], name: str) -> Arena:
    return Arena(arrays[name], arrays[name].view(np.int64), arrays[f"{name}_numbers"])


def make_room(storage: Storage, windows: Windows, signal: int, wanted: int) -> None:
    """Give the storage the room that a kernel lacks. Its arrays may be replaced: map them again."""
    capacity = storage.capacity()
    if signal == NEEDS_SLOT:
        storage.grow(growth.more_slots(capacity, "slots"))
    elif signal == NEEDS_KEY:
        storage.grow(growth.more_slots(capacity, "keys", "index"))
        version_chains.reindex(windows_of(storage.arrays()).versions)
    elif signal == NEEDS_CHAINS:
        versions = windows.versions
        growth.make_room(storage, "chains", versions.chains, wanted, partial(version_chains.repack, versions))
    else:
        stored, used = windows.versions.payloads, int(windows.pool.numbers[slots.USED])
        growth.make_room(storage, "arena", stored.arena, wanted, partial(payloads.repack, stored, used))


@inlined
def missing_room(windows: Windows, key: int, at: int, length: int) -> Any:
    """Return what is lacking to open a window before that entry of the key's chain (or DONE), and the bytes wanted.

    `key`: NONE for a new key. `length`: of the record that the window is to hold.
    """
    if not slots.has_slot(windows.pool):
        return NEEDS_SLOT, wide(0)
    if key == NONE and not slots.has_slot(windows.versions.keys):
        return NEEDS_KEY, wide(0)
    if not version_chains.has_room(windows.versions, key, at):
        return NEEDS_CHAINS, version_chains.wanted_bytes(windows.versions, key)
    if not arena.has_room(windows.versions.payloads.arena, length):
        return NEEDS_ARENA, wide(length)
    return DONE, wide(0)


@inlined
def open_window(windows: Windows, batch: FlatRecords, row: int, key: int, at: int, start: int) -> Any:
    """Open a window that holds the row's record, and return its slot. `missing_room` must have returned DONE.

    The window is not in the order yet.
    """
    unused = windows.pool.numbers[slots.FREE] == 0
    slot = slots.take(windows.pool)
    if unused:
        windows.versions.payloads.block[slot] = 0
        windows.versions.payloads.checksum[slot] = 0
        windows.status[slot] = 0
    windows.order.position[slot] = time_buffer.NOT_HELD
    payloads.store(windows.versions.payloads, slot, batch, row)
    if key == NONE:
        fingerprint = hash_index.fingerprint(
            windows.versions.key_index, batch.data, batch.key_start[row], batch.key_length[row]
        )
        key = version_chains.add_key(windows.versions, fingerprint)
    windows.key[slot] = key
    version_chains.make_room(windows.versions, key, at)
    version_chains.insert(windows.versions, key, at, start, slot)
    return slot


@inlined
def take_out(windows: Windows, key: int, at: int) -> Any:
    """Take an entry out of the key's chain and out of the order, and return its slot, which still has its record."""
    slot = version_chains.version_at(windows.versions, key, at)
    version_chains.remove(windows.versions, key, at)
    if windows.versions.length[key] == 0:
        version_chains.drop_key(windows.versions, key)
    time_buffer.remove(windows.order, slot)
    return slot


@inlined
def index_of(windows: Windows, slot: int, start: int) -> Any:
    """Return which entry of its key's chain the slot is; it is stored there under `start`."""
    key = wide(windows.key[slot])
    at = version_chains.entries_until(windows.versions, key, start) - 1
    while version_chains.version_at(windows.versions, key, at) != slot:
        at -= 1
    return at


@inlined
def free(windows: Windows, slot: int) -> None:
    """Release the slot, which is in no chain, and its record."""
    payloads.drop(windows.versions.payloads, slot)
    slots.give_back(windows.pool, slot)
