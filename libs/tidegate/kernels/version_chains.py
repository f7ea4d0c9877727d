"""The versions of each key of a table, in order of valid_from.

A chain is one block of an arena, with an entry of two words per version: valid_from and the version's slot, whose
record is in the payloads. Free entries may lie at both ends of a block, so that the newest version is added and the
oldest is removed without moving any other, and one in the middle moves the fewer ones. Tombstones are versions.
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
"""The words of an entry."""

AHEAD = 8
"""Rows between two steps of what is fetched before its turn."""

FAR_AHEAD = 5 * AHEAD
"""So many rows before its turn the first step is taken."""


class Versions(NamedTuple):
    """All versions of a table's partition.

    `numbers`: the first instant whose versions are all there, and 1 for a table of latest values, which has no times.
    Per key: its fingerprint, the first word of its block, the free entries before its chain, and the entries of the
    chain and of the block. Per version: `payloads`.
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
    """A state that has versions: a table's."""

    @property
    def versions(self) -> Versions:
        """What is held now. Growth makes it stale: fetch it again for each batch."""
        ...

    @property
    def stream_time(self) -> int:
        """T of the table's partition."""
        ...


@inlined
def as_of(versions: Versions, data: Array, key_start: int, key_length: int, timestamp: int) -> Any:
    """The slot of the version of that key that was valid at the timestamp; NONE: there is none, or it is a tombstone.

    Before READABLE_FROM only the latest version is there, and a table without times has no other.
    """
    key = find(versions, data, key_start, key_length)
    return NONE if key == NONE else _unless_tombstone(versions, key, entry_as_of(versions, key, timestamp))


@inlined
def latest(versions: Versions, data: Array, key_start: int, key_length: int) -> Any:
    """The slot of the newest version of that key, whenever it is valid; NONE: there is none, or it is a tombstone."""
    key = find(versions, data, key_start, key_length)
    return NONE if key == NONE else _unless_tombstone(versions, key, wide(versions.length[key]) - 1)


@inlined
def valid_from(versions: Versions, version: int) -> Any:
    """The timestamp from which the version is valid."""
    return versions.payloads.timestamp[version]


@inlined
def value_start(versions: Versions, version: int) -> Any:
    """The position of the version's value in `payloads.arena.data`; its length is `payloads.value_length[version]`."""
    return payloads.start_of(versions.payloads, version) + versions.payloads.key_length[version]


@inlined
def _unless_tombstone(versions: Versions, key: int, at: int) -> Any:
    """The version's slot of that entry; NONE for a tombstone, or where the entry is NONE."""
    if at == NONE:
        return NONE
    version = version_at(versions, key, at)
    return version if versions.payloads.value_length[version] >= 0 else NONE


class Trail(NamedTuple):
    """Scratch of a batch, int64 by row: the keys' fingerprints, and the slots that they were found to have."""

    prints: Array
    keys: Array


@compiled_in_place
def as_of_many(
    versions: Versions, data: Array, key_start: Array, key_length: Array, timestamps: Array, trail: Trail, found: Array
) -> None:
    """`found` has what `as_of` gives for each key and timestamp."""
    take_prints(versions, data, key_start, key_length, trail)
    rows = len(found)
    for row in range(-FAR_AHEAD, rows + 2 * AHEAD):
        fetch_chains(versions, trail, row + AHEAD)
        if 0 <= row < rows:
            key = trail.keys[row]
            at = entry_as_of(versions, key, timestamps[row]) if key != NONE else NONE
            found[row] = version_at(versions, key, at) if at != NONE else NONE
            prefetch(versions.payloads.value_length, found[row])
        at = row - AHEAD
        if 0 <= at < rows and trail.prints[at] < 0 and found[at] != NONE:
            prefetch(versions.payloads.arena.data, payloads.start_of(versions.payloads, found[at]))
        at = row - 2 * AHEAD
        if at >= 0:
            found[at] = _checked(versions, trail, at, data, key_start[at], key_length[at], timestamps[at], found[at])


@inlined
def _checked(
    versions: Versions, trail: Trail, row: int, data: Array, start: int, length: int, timestamp: int, version: int
) -> Any:
    """What `as_of` gives, where `version` answers for a key with the row's fingerprint."""
    if trail.keys[row] == NONE:
        return NONE
    if trail.prints[row] < 0 and (version == NONE or not _has_key(versions, version, data, start, length)):
        return as_of(versions, data, start, length, timestamp)
    return version if version != NONE and versions.payloads.value_length[version] >= 0 else NONE


@inlined
def take_prints(versions: Versions, data: Array, key_start: Array, key_length: Array, trail: Trail) -> None:
    """The trail has the fingerprint of each key."""
    for row in range(len(trail.prints)):
        length = max(0, key_length[row])
        trail.prints[row] = hash_index.fingerprint(versions.key_index, data, key_start[row], length)


@inlined
def fetch_ahead(versions: Versions, trail: Trail, row: int) -> None:
    """What it takes to find the keys of rows after this one is on its way into the cache.

    For each of some rows one step, which needs what the step before has fetched: what `fetch_chains` fetches, and,
    where a fingerprint does not tell the key, the version and the bytes to compare it with. A loop begins at row
    -FAR_AHEAD, and does nothing else before row 0.
    """
    prints, keys = trail.prints, trail.keys
    rows = len(prints)
    fetch_chains(versions, trail, row + 3 * AHEAD)
    at = row + 2 * AHEAD
    if 0 <= at < rows and keys[at] != NONE and prints[at] < 0:
        prefetch(versions.payloads.block, _newest(versions, keys[at]))
    at -= AHEAD
    if 0 <= at < rows and keys[at] != NONE and prints[at] < 0:
        version = _newest(versions, keys[at])
        if 0 <= version < len(versions.payloads.block):  # the key may be gone
            prefetch(versions.payloads.arena.data, payloads.start_of(versions.payloads, version))


@inlined
def fetch_chains(versions: Versions, trail: Trail, row: int) -> None:
    """The ends and the middle of the chain of the row's key are on their way into the cache, and the trail has the key.

    It is a key with that fingerprint; no other step looked at bytes. For the rows after this one it is the key, and the
    place in the index, that are on their way.
    """
    prints = trail.prints
    rows = len(prints)
    at = row + 2 * AHEAD
    if 0 <= at < rows:
        prefetch(versions.key_index.places, hash_index.home(versions.key_index, prints[at]))
    at -= AHEAD
    if 0 <= at < rows:
        place = hash_index.home(versions.key_index, prints[at])
        prefetch(versions.fingerprint, wide(versions.key_index.places[place]) - 1)
    if 0 <= row < rows:
        trail.keys[row] = _printed(versions, prints[row])
        if trail.keys[row] != NONE:
            _fetch_chain(versions, trail.keys[row])


@inlined
def _fetch_chain(versions: Versions, key: int) -> None:
    words, length = versions.chains.words, wide(versions.length[key])
    fetch_first(versions, key)
    prefetch(words, _entry(versions, key, length >> 1))
    prefetch(words, _entry(versions, key, length - 1))


@inlined
def fetch_first(versions: Versions, key: int) -> None:
    """The first entries of the key's chain are on their way into the cache."""
    prefetch(versions.chains.words, _entry(versions, key, 0))


@inlined
def _printed(versions: Versions, wanted: int) -> Any:
    """A key with that fingerprint; NONE: there is none."""
    place = hash_index.home(versions.key_index, wanted)
    place = hash_index.candidate(versions.key_index, versions.fingerprint, wanted, place)
    return wide(versions.key_index.places[place]) - 1


@inlined
def find_fetched(versions: Versions, trail: Trail, row: int, data: Array, key_start: int, key_length: int) -> Any:
    """As `find`, for a row that `fetch_ahead` was told of in time. Keys may have come and gone since then."""
    wanted = trail.prints[row]
    key = trail.keys[row]
    if key != NONE and versions.fingerprint[key] == wanted and versions.capacity[key] != 0:
        if _has_key(versions, _newest(versions, key), data, key_start, key_length):
            return key
    return find_printed(versions, wanted, data, key_start, key_length)


@inlined
def entry_as_of(versions: Versions, key: int, timestamp: int) -> Any:
    """The entry of the key's chain, tombstones included, that answers for the timestamp; NONE: there is none."""
    last = wide(versions.length[key]) - 1
    if versions.numbers[TIMELESS] != 0:
        return last
    if timestamp < versions.numbers[READABLE_FROM]:
        return last if time_at(versions, key, last) <= timestamp else NONE
    return entries_until(versions, key, timestamp) - 1


@inlined
def time_at(versions: Versions, key: int, at: int) -> Any:
    """The valid_from of an entry of the key's chain."""
    return versions.chains.words[_entry(versions, key, at)]


@inlined
def version_at(versions: Versions, key: int, at: int) -> Any:
    """The version's slot of an entry of the key's chain."""
    return versions.chains.words[_entry(versions, key, at) + 1]


@inlined
def _entry(versions: Versions, key: int, at: int) -> Any:
    return wide(versions.block[key]) + ENTRY * (wide(versions.first[key]) + at)


@inlined
def entries_until(versions: Versions, key: int, timestamp: int) -> Any:
    """How many entries of the chain have a valid_from up to the timestamp."""
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
    """The slot of the key; NONE when it has no version."""
    return find_printed(
        versions, hash_index.fingerprint(versions.key_index, data, key_start, key_length), data, key_start, key_length
    )


@inlined
def find_printed(versions: Versions, wanted: int, data: Array, key_start: int, key_length: int) -> Any:
    """As `find`, for a key whose fingerprint is known."""
    place = hash_index.home(versions.key_index, wanted)
    while True:
        place = hash_index.candidate(versions.key_index, versions.fingerprint, wanted, place)
        key = wide(versions.key_index.places[place]) - 1
        if key < 0 or _has_key(versions, _newest(versions, key), data, key_start, key_length):
            return key
        place = hash_index.next_place(versions.key_index, place)


@inlined
def is_key(versions: Versions, key: int, data: Array, start: int, length: int) -> bool:
    """True when the key, whose fingerprint is that of the bytes, is the same bytes; by its oldest version."""
    return _has_key(versions, version_at(versions, key, 0), data, start, length)


@inlined
def _has_key(versions: Versions, version: int, data: Array, start: int, length: int) -> bool:
    """True when the version's key, whose fingerprint is that of the bytes, is the same bytes."""
    if hash_index.told_by_fingerprint(length):
        return True
    stored = versions.payloads
    if stored.key_length[version] != length:
        return False
    return hash_index.same_bytes(data, start, stored.arena.data, payloads.start_of(stored, version), length)


@inlined
def _newest(versions: Versions, key: int) -> Any:
    """The version that readers want most, so that what is read to compare keys serves them too."""
    return version_at(versions, key, wide(versions.length[key]) - 1)


@inlined
def add_key(versions: Versions, fingerprint: int) -> Any:
    """The slot of a key without a version yet; there must be room for it in `keys`."""
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
    """The key, which has no version, is gone."""
    if versions.block[key] != 0:
        arena.release(versions.chains, wide(versions.block[key]) * WORD, _bytes(versions.capacity[key]))
    versions.capacity[key] = 0
    hash_index.remove(versions.key_index, versions.fingerprint, key)
    slots.give_back(versions.keys, key)


@inlined
def set_time(versions: Versions, key: int, at: int, timestamp: int) -> None:
    """The entry has another valid_from, with which it stands where it did."""
    versions.chains.words[_entry(versions, key, at)] = timestamp


@inlined
def insert(versions: Versions, key: int, at: int, timestamp: int, version: int) -> None:
    """The chain has that entry before the one that was at `at`; `make_room` must have said so."""
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
    """The chain does not have the entry that was at `at`."""
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
    """The entry at `at` stands before the earlier one that was at `before`, under another timestamp."""
    words = versions.chains.words
    base = _entry(versions, key, 0)
    version = words[base + ENTRY * at + 1]
    for word in range(base + ENTRY * at - 1, base + ENTRY * before - 1, -1):
        words[word + ENTRY] = words[word]
    words[base + ENTRY * before] = timestamp
    words[base + ENTRY * before + 1] = version


@inlined
def remove_first(versions: Versions, key: int, count: int) -> None:
    """The chain does not have so many of its first entries."""
    versions.first[key] += count
    versions.length[key] -= count


@inlined
def has_room(versions: Versions, key: int, at: int) -> bool:
    """True when `make_room` can succeed without growth of the chains' arena. NONE: a key that is yet to be added."""
    if key != NONE and _has_gap(versions, key, at):
        return True
    return arena.has_room(versions.chains, wanted_bytes(versions, key))


@inlined
def make_room(versions: Versions, key: int, at: int) -> None:
    """There is a free entry at the end of the chain that is nearer to `at`."""
    if not _has_gap(versions, key, at):
        _move_chain(versions, key, at)


@inlined
def _has_gap(versions: Versions, key: int, at: int) -> bool:
    """True when the end that is nearer to `at` has a free entry."""
    count = wide(versions.length[key])
    if _is_nearer_to_end(count, at):
        return bool(wide(versions.first[key]) + count < versions.capacity[key])
    return bool(versions.first[key] > 0)


@inlined
def _is_nearer_to_end(count: int, at: int) -> bool:
    """True when an entry at `at` is to push the later ones of a chain on, not the earlier ones back."""
    return count - at <= at


@inlined
def wanted_bytes(versions: Versions, key: int) -> Any:
    """The length of the chain's next block: of half as many entries again as there are. NONE: of a new key's first."""
    length = wide(versions.length[key]) if key != NONE else wide(0)
    return _bytes(length + (length >> 1) + 1)


@inlined
def _move_chain(versions: Versions, key: int, at: int) -> None:
    """The chain is in another block, with most of its free entries at the end that is nearer to `at`.

    Some are at the other end, or adding to both in turn would move the chain each time.
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
    """The index holds every key that has a block, whatever its length was before."""
    versions.key_index.places[:] = 0
    for key in range(versions.keys.numbers[slots.USED]):
        if versions.capacity[key] != 0:
            hash_index.insert(versions.key_index, versions.fingerprint, key)


@compiled_in_place
def repack(versions: Versions, spare: Array) -> None:
    """All blocks of the chains lie side by side at the front. `spare`: int64[live words + 1], scratch."""
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
