"""The versions of each key of a table, in order of valid_from.

A chain is one block of an arena, with an entry of two words per version: valid_from and the version's slot, whose
record is in the payloads. A block may have free entries at both ends. So adding the newest version or removing the
oldest one moves no other entry, and a change in the middle moves the smaller part. Tombstones are versions.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import WORD, prefetch
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import Payloads

READABLE_FROM, TIMELESS = 0, 1
NUMBERS = 2

NONE = -1
"""No key, no entry of its chain, or no version."""

ENTRY = 2
"""Words per entry."""

AHEAD = 8
"""Rows between two prefetch steps."""

FAR_AHEAD = 5 * AHEAD
"""How many rows before its turn the first prefetch step of a row runs."""


class Versions(NamedTuple):
    """All versions of a table's partition.

    `numbers`: the first time from which all versions are kept, and 1 for a table of latest values, which has no times.
    Per key: its fingerprint, the first word of its block, the number of free entries before its chain, and the lengths
    of the chain and of the block in entries. Per version: `payloads`.
    """

    numbers: Array
    key_index: Index
    keys: SlotPool
    fingerprint: Array
    block: Array
    first: Array
    length: Array
    capacity: Array
    chains: Arena
    payloads: Payloads


class VersionedState(Protocol):
    """The state of a table: one that has versions."""

    @property
    def windowed(self) -> bool:
        """Return whether windows are part of keys."""
        ...

    @property
    def versions(self) -> Versions:
        """Return the versions that are held now. Growth makes them stale: fetch them again for each micro-batch."""
        ...

    @property
    def stream_time(self) -> int:
        """Return stream time T of the table's partition."""
        ...


@inlined
def as_of(versions: Versions, data: Array, key_start: int, key_length: int, timestamp: int) -> Any:
    """Return the slot of the key's version that was valid at the timestamp; NONE if there is none or it is a tombstone.

    Before READABLE_FROM only the latest version is there, and a table without times has no other version.
    """
    key = find(versions, data, key_start, key_length)
    return NONE if key == NONE else _unless_tombstone(versions, key, entry_as_of(versions, key, timestamp))


@inlined
def latest(versions: Versions, data: Array, key_start: int, key_length: int) -> Any:
    """Return the slot of the key's newest version, whatever its valid_from; NONE if there is none.

    A tombstone counts as none.
    """
    key = find(versions, data, key_start, key_length)
    return NONE if key == NONE else _unless_tombstone(versions, key, wide(versions.length[key]) - 1)


@inlined
def valid_from(versions: Versions, version: int) -> Any:
    """Return the timestamp from which the version is valid."""
    return versions.payloads.timestamp[version]


@inlined
def value_start(versions: Versions, version: int) -> Any:
    """Return the position of the version's value in `payloads.arena.data`.

    Its length is `payloads.value_length[version]`.
    """
    return payloads.start_of(versions.payloads, version) + versions.payloads.key_length[version]


@inlined
def _unless_tombstone(versions: Versions, key: int, at: int) -> Any:
    """Return the version's slot of that entry; NONE if the entry is NONE or a tombstone."""
    if at == NONE:
        return NONE
    version = version_at(versions, key, at)
    return version if versions.payloads.value_length[version] >= 0 else NONE


class LookupScratch(NamedTuple):
    """Scratch arrays of a micro-batch, int64 by row: fingerprints of the keys, and the key slots found for them."""

    fingerprints: Array
    keys: Array


@compiled_in_place
def as_of_many(
    versions: Versions,
    data: Array,
    key_start: Array,
    key_length: Array,
    timestamps: Array,
    scratch: LookupScratch,
    found: Array,
) -> None:
    """Write to `found` what `as_of` returns for each key and timestamp."""
    compute_fingerprints(versions, data, key_start, key_length, scratch)
    rows = len(found)
    # The steps of one row are AHEAD rows apart, so that each step finds what the step before has prefetched.
    for row in range(-FAR_AHEAD, rows + 2 * AHEAD):
        fetch_chains(versions, scratch, row + AHEAD)
        if 0 <= row < rows:
            key = scratch.keys[row]
            at = entry_as_of(versions, key, timestamps[row]) if key != NONE else NONE
            found[row] = version_at(versions, key, at) if at != NONE else NONE
            prefetch(versions.payloads.value_length, found[row])
        at = row - AHEAD
        if 0 <= at < rows and scratch.fingerprints[at] < 0 and found[at] != NONE:
            prefetch(versions.payloads.arena.data, payloads.start_of(versions.payloads, found[at]))
        at = row - 2 * AHEAD
        if at >= 0:
            found[at] = _checked(versions, scratch, at, data, key_start[at], key_length[at], timestamps[at], found[at])


@inlined
def _checked(
    versions: Versions,
    scratch: LookupScratch,
    row: int,
    data: Array,
    start: int,
    length: int,
    timestamp: int,
    version: int,
) -> Any:
    """Return what `as_of` returns, given `version` as the answer for a key with the row's fingerprint."""
    if scratch.keys[row] == NONE:
        return NONE
    if scratch.fingerprints[row] < 0 and (version == NONE or not _has_key(versions, version, data, start, length)):
        return as_of(versions, data, start, length, timestamp)
    return version if version != NONE and versions.payloads.value_length[version] >= 0 else NONE


@inlined
def compute_fingerprints(
    versions: Versions, data: Array, key_start: Array, key_length: Array, scratch: LookupScratch
) -> None:
    """Write the fingerprint of each key to the scratch."""
    for row in range(len(scratch.fingerprints)):
        length = max(0, key_length[row])
        scratch.fingerprints[row] = hash_index.fingerprint(versions.key_index, data, key_start[row], length)


@inlined
def prefetch_ahead(versions: Versions, scratch: LookupScratch, row: int) -> None:
    """Prefetch what it takes to find the keys of the rows after this one.

    Each call takes one step for each of several rows; a step needs what the step before has prefetched. The steps are
    those of `fetch_chains`; then, for keys that their fingerprint does not identify, the version and the bytes to
    compare the key with. A loop begins at row -FAR_AHEAD, and does nothing else before row 0.
    """
    prints, keys = scratch.fingerprints, scratch.keys
    rows = len(prints)
    fetch_chains(versions, scratch, row + 3 * AHEAD)
    at = row + 2 * AHEAD
    if 0 <= at < rows and keys[at] != NONE and prints[at] < 0:
        prefetch(versions.payloads.block, _newest(versions, keys[at]))
    at -= AHEAD
    if 0 <= at < rows and keys[at] != NONE and prints[at] < 0:
        version = _newest(versions, keys[at])
        if 0 <= version < len(versions.payloads.block):  # the key may be gone
            prefetch(versions.payloads.arena.data, payloads.start_of(versions.payloads, version))


@inlined
def fetch_chains(versions: Versions, scratch: LookupScratch, row: int) -> None:
    """Prefetch the ends and the middle of the chain of the row's key, and write the key to the scratch.

    The key is any key with the row's fingerprint: no step before compares bytes. For the rows after this one, the place
    in the index, and then the key, is prefetched.
    """
    prints = scratch.fingerprints
    rows = len(prints)
    at = row + 2 * AHEAD
    if 0 <= at < rows:
        prefetch(versions.key_index.places, hash_index.home(versions.key_index, prints[at]))
    at -= AHEAD
    if 0 <= at < rows:
        place = hash_index.home(versions.key_index, prints[at])
        prefetch(versions.fingerprint, wide(versions.key_index.places[place]) - 1)
    if 0 <= row < rows:
        scratch.keys[row] = _printed(versions, prints[row])
        if scratch.keys[row] != NONE:
            _fetch_chain(versions, scratch.keys[row])


@inlined
def _fetch_chain(versions: Versions, key: int) -> None:
    words, length = versions.chains.words, wide(versions.length[key])
    prefetch_first(versions, key)
    prefetch(words, _entry(versions, key, length >> 1))
    prefetch(words, _entry(versions, key, length - 1))


@inlined
def prefetch_first(versions: Versions, key: int) -> None:
    """Prefetch the first entries of the key's chain."""
    prefetch(versions.chains.words, _entry(versions, key, 0))


@inlined
def _printed(versions: Versions, wanted: int) -> Any:
    """Return a key with that fingerprint; NONE if there is none."""
    place = hash_index.home(versions.key_index, wanted)
    place = hash_index.candidate(versions.key_index, versions.fingerprint, wanted, place)
    return wide(versions.key_index.places[place]) - 1


@inlined
def find_prefetched(
    versions: Versions, scratch: LookupScratch, row: int, data: Array, key_start: int, key_length: int
) -> Any:
    """Return what `find` returns, for a row that `prefetch_ahead` has prefetched.

    Keys may have been added or dropped since then.
    """
    wanted = scratch.fingerprints[row]
    key = scratch.keys[row]
    if key != NONE and versions.fingerprint[key] == wanted and versions.capacity[key] != 0:
        if _has_key(versions, _newest(versions, key), data, key_start, key_length):
            return key
    return find_by_fingerprint(versions, wanted, data, key_start, key_length)


@inlined
def entry_as_of(versions: Versions, key: int, timestamp: int) -> Any:
    """Return the entry of the key's chain that is valid at the timestamp, tombstones included; NONE: there is none."""
    last = wide(versions.length[key]) - 1
    if versions.numbers[TIMELESS] != 0:
        return last
    if timestamp < versions.numbers[READABLE_FROM]:
        return last if time_at(versions, key, last) <= timestamp else NONE
    return entries_until(versions, key, timestamp) - 1


@inlined
def time_at(versions: Versions, key: int, at: int) -> Any:
    """Return the valid_from of an entry of the key's chain."""
    return versions.chains.words[_entry(versions, key, at)]


@inlined
def version_at(versions: Versions, key: int, at: int) -> Any:
    """Return the version's slot of an entry of the key's chain."""
    return versions.chains.words[_entry(versions, key, at) + 1]


@inlined
def _entry(versions: Versions, key: int, at: int) -> Any:
    return wide(versions.block[key]) + ENTRY * (wide(versions.first[key]) + at)


@inlined
def entries_until(versions: Versions, key: int, timestamp: int) -> Any:
    """Return how many entries of the chain have a valid_from at or before the timestamp."""
    words = versions.chains.words
    base = _entry(versions, key, 0)
    low = 0
    rest = wide(versions.length[key])
    while rest > 0:
        half = rest >> 1
        if words[base + ENTRY * (low + half)] <= timestamp:
            low += half + 1
            rest -= half + 1
        else:
            rest = half
    return low


@inlined
def find(versions: Versions, data: Array, key_start: int, key_length: int) -> Any:
    """Return the slot of the key; NONE if it has no version."""
    return find_by_fingerprint(
        versions, hash_index.fingerprint(versions.key_index, data, key_start, key_length), data, key_start, key_length
    )


@inlined
def find_by_fingerprint(versions: Versions, wanted: int, data: Array, key_start: int, key_length: int) -> Any:
    """Return the slot of a key with a known fingerprint; NONE if it has no version."""
    place = hash_index.home(versions.key_index, wanted)
    while True:
        place = hash_index.candidate(versions.key_index, versions.fingerprint, wanted, place)
        key = wide(versions.key_index.places[place]) - 1
        if key < 0 or _has_key(versions, _newest(versions, key), data, key_start, key_length):
            return key
        place = hash_index.next_place(versions.key_index, place)


@inlined
def is_key(versions: Versions, key: int, data: Array, start: int, length: int) -> bool:
    """Return whether the key, which has the fingerprint of the bytes, equals the bytes; compare its oldest version."""
    return _has_key(versions, version_at(versions, key, 0), data, start, length)


@inlined
def _has_key(versions: Versions, version: int, data: Array, start: int, length: int) -> bool:
    """Return whether the version's key, which has the fingerprint of the bytes, equals the bytes."""
    if hash_index.fingerprint_is_exact(length):
        return True
    stored = versions.payloads
    if stored.key_length[version] != length:
        return False
    return hash_index.same_bytes(data, start, stored.arena.data, payloads.start_of(stored, version), length)


@inlined
def _newest(versions: Versions, key: int) -> Any:
    """Return the key's newest version: readers want it most, so reading it to compare keys serves them too."""
    return version_at(versions, key, wide(versions.length[key]) - 1)


@inlined
def add_key(versions: Versions, fingerprint: int) -> Any:
    """Add a key without versions, and return its slot. There must be room for it in `keys`."""
    key = slots.take(versions.keys)
    versions.fingerprint[key] = fingerprint
    versions.block[key] = 0
    versions.first[key] = 0
    versions.length[key] = 0
    versions.capacity[key] = 0
    hash_index.insert(versions.key_index, versions.fingerprint, key)
    return key


@inlined
def drop_key(versions: Versions, key: int) -> None:
    """Remove the key, which has no versions."""
    if versions.block[key] != 0:
        arena.release(versions.chains, wide(versions.block[key]) * WORD, _bytes(versions.capacity[key]))
    versions.capacity[key] = 0
    hash_index.remove(versions.key_index, versions.fingerprint, key)
    slots.give_back(versions.keys, key)


@inlined
def set_time(versions: Versions, key: int, at: int, timestamp: int) -> None:
    """Set the entry's valid_from. The order of the chain must stay the same."""
    versions.chains.words[_entry(versions, key, at)] = timestamp


@inlined
def insert(versions: Versions, key: int, at: int, timestamp: int, version: int) -> None:
    """Insert an entry before the one at `at`. `make_room` must have been called for it."""
    words = versions.chains.words
    first = wide(versions.first[key])
    count = wide(versions.length[key])
    base = _entry(versions, key, 0)
    if _is_nearer_to_end(count, at):
        for word in range(base + ENTRY * count - 1, base + ENTRY * at - 1, -1):
            words[word + ENTRY] = words[word]
    else:
        for word in range(base, base + ENTRY * at):
            words[word - ENTRY] = words[word]
        versions.first[key] = first - 1
        base -= ENTRY
    words[base + ENTRY * at] = timestamp
    words[base + ENTRY * at + 1] = version
    versions.length[key] = count + 1


@inlined
def remove(versions: Versions, key: int, at: int) -> None:
    """Remove the entry at `at` from the chain."""
    words = versions.chains.words
    count = wide(versions.length[key])
    base = _entry(versions, key, 0)
    if at < count - 1 - at:
        for word in range(base + ENTRY * at - 1, base - 1, -1):
            words[word + ENTRY] = words[word]
        versions.first[key] += 1
    else:
        for word in range(base + ENTRY * (at + 1), base + ENTRY * count):
            words[word - ENTRY] = words[word]
    versions.length[key] = count - 1


@inlined
def move(versions: Versions, key: int, at: int, before: int, timestamp: int) -> None:
    """Move the entry at `at` before the earlier entry at `before`, under another timestamp."""
    words = versions.chains.words
    base = _entry(versions, key, 0)
    version = words[base + ENTRY * at + 1]
    for word in range(base + ENTRY * at - 1, base + ENTRY * before - 1, -1):
        words[word + ENTRY] = words[word]
    words[base + ENTRY * before] = timestamp
    words[base + ENTRY * before + 1] = version


@inlined
def remove_first(versions: Versions, key: int, count: int) -> None:
    """Remove the first `count` entries of the chain."""
    versions.first[key] += count
    versions.length[key] -= count


@inlined
def has_room(versions: Versions, key: int, at: int) -> bool:
    """Return whether `make_room` can succeed without growth of the chains' arena. NONE: a key yet to be added."""
    if key != NONE and _has_gap(versions, key, at):
        return True
    return arena.has_room(versions.chains, wanted_bytes(versions, key))


@inlined
def make_room(versions: Versions, key: int, at: int) -> None:
    """Make sure that there is a free entry at the end of the chain that is nearer to `at`."""
    if not _has_gap(versions, key, at):
        _move_chain(versions, key, at)


@inlined
def _has_gap(versions: Versions, key: int, at: int) -> bool:
    """Return whether the end that is nearer to `at` has a free entry."""
    count = wide(versions.length[key])
    if _is_nearer_to_end(count, at):
        return bool(wide(versions.first[key]) + count < versions.capacity[key])
    return bool(versions.first[key] > 0)


@inlined
def _is_nearer_to_end(count: int, at: int) -> bool:
    """Return whether inserting at `at` moves the later entries on, rather than the earlier ones back."""
    return count - at <= at


@inlined
def wanted_bytes(versions: Versions, key: int) -> Any:
    """Return the size of the chain's next block in bytes: one entry, and one and a half times those that it has.

    NONE: the first block of a new key.
    """
    length = wide(versions.length[key]) if key != NONE else wide(0)
    return _bytes(length + (length >> 1) + 1)


@inlined
def _move_chain(versions: Versions, key: int, at: int) -> None:
    """Move the chain to another block, with most of its free entries at the end that is nearer to `at`.

    Some are at the other end. Otherwise, adding to both ends in turn would move the chain each time.
    """
    words = versions.chains.words
    old = _entry(versions, key, 0)
    count = wide(versions.length[key])
    wanted = wanted_bytes(versions, key)
    block = arena.allocate(versions.chains, wanted) // WORD
    capacity = arena.class_words(arena.size_class(wanted)) // ENTRY
    free = capacity - count
    first = free >> 2 if _is_nearer_to_end(count, at) else free - (free >> 2)
    for word in range(ENTRY * count):
        words[block + ENTRY * first + word] = words[old + word]
    if versions.block[key] != 0:
        arena.release(versions.chains, wide(versions.block[key]) * WORD, _bytes(versions.capacity[key]))
    versions.block[key] = block
    versions.first[key] = first
    versions.capacity[key] = capacity


@inlined
def _bytes(entries: int) -> Any:
    return ENTRY * WORD * wide(entries)


@compiled_in_place
def reindex(versions: Versions) -> None:
    """Insert every key that has a block into the emptied index, whatever the index's length was before."""
    versions.key_index.places[:] = 0
    for key in range(versions.keys.numbers[slots.USED]):
        if versions.capacity[key] != 0:
            hash_index.insert(versions.key_index, versions.fingerprint, key)


@compiled_in_place
def repack(versions: Versions, spare: Array) -> None:
    """Move all blocks of the chains to the front of their arena, without gaps.

    `spare`: int64[live words + 1], scratch.
    """
    words = versions.chains.words
    end = 1
    for key in range(versions.keys.numbers[slots.USED]):
        if versions.capacity[key] != 0:
            length = arena.class_words(arena.size_class(_bytes(versions.capacity[key])))
            block = wide(versions.block[key])
            versions.block[key] = end
            for word in range(block, block + length):
                spare[end] = words[word]
                end += 1
    for word in range(end):
        words[word] = spare[word]
    arena.forget_free_blocks(versions.chains, end)
