"""A seeded hash index over slots, with open addressing.

The seed is a secret of the storage: without it, nobody can choose keys that collide. Multiplying by a secret and
folding the 128-bit product cannot be predicted or inverted without the secret, and costs one multiplication per word.

The index holds `slot + 1` at a place that linear probing reaches from the home of the key's fingerprint. 0 marks an
empty place, so a zeroed array is an empty index. The length of the index is a power of two of at least twice the slots.
Removal shifts later entries back, so there are no tombstones and no clean-up. The index knows only fingerprints: a slot
with an equal fingerprint is a candidate, and the caller compares the bytes of keys that are too long to be identified
by it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined
from tidegate.kernels.compiled.words import WORD, folded, product, word_at

_FACTOR = -0x61C8864680B583EB
_LONG = -(2**63)
_LOW_32 = 2**32 - 1


KNOWN_SEED = np.array([0, _FACTOR], np.int64)
"""A seed for indexes of keys that no producer can choose."""


class Index(NamedTuple):
    """The places of an index, and its seed of two words."""

    places: Array
    seed: Array


@inlined
def fingerprint(index: Index, data: Array, start: int, length: int) -> Any:
    """Return an int64 that identifies a key that is `fingerprint_is_exact`, and is a hash of any other key.

    The fingerprint of a short key is its bytes with its length above them, so it is >= 0. That of a long key is
    negative.
    """
    if not fingerprint_is_exact(length):
        return _hash(index.seed, data, start, length) | _LONG
    if start + WORD <= len(data):
        return word_at(data, start) & ((1 << 8 * length) - 1) | length << 56
    found = np.int64(length) << 56
    for at in range(length):
        found |= np.int64(data[start + at]) << 8 * at
    return found


@inlined
def fingerprint_is_exact(length: int) -> bool:
    """Return whether a key of that many bytes is identified by its fingerprint: no other key has the same one."""
    return length < WORD


@inlined
def _hash(seed: Array, data: Array, start: int, length: int) -> Any:
    mixed = seed[0] ^ length
    for at in range(start, start + length - WORD, WORD):
        mixed = folded(mixed ^ word_at(data, at), seed[1] | 1)
    return folded(mixed ^ word_at(data, start + length - WORD), seed[1] | 1)


@inlined
def mix(word: int) -> Any:
    """Return a different word for every word, so that a checksum made of such steps detects any change of one word.

    Shifts are logical: arithmetic shifts would map a word and its complement to the same word. There is no seed, so
    this is not for an index.
    """
    mixed = product(word ^ ((word >> 32) & _LOW_32), _FACTOR)
    return mixed ^ ((mixed >> 32) & _LOW_32)


@inlined
def same_bytes(left: Array, left_start: int, right: Array, right_start: int, length: int) -> bool:
    """Return whether both buffers hold the same `length` bytes, which are at least eight, at the given positions."""
    last = length - WORD  # the last word may overlap the one before it: no byte is compared alone
    for at in range(0, last, WORD):
        if word_at(left, left_start + at) != word_at(right, right_start + at):
            return False
    return bool(word_at(left, left_start + last) == word_at(right, right_start + last))


@inlined
def home(index: Index, wanted: int) -> Any:
    """Return the place at which probing for a fingerprint begins."""
    return folded(wanted ^ index.seed[0], index.seed[1] | 1) & (len(index.places) - 1)


@inlined
def next_place(index: Index, place: int) -> Any:
    """Return the next place; the first place follows the last."""
    return (place + 1) & (len(index.places) - 1)


@inlined
def candidate(index: Index, prints: Array, wanted: int, place: int) -> Any:
    """Return the first place from `place` on that is empty or holds a slot with that fingerprint."""
    while index.places[place] != 0 and prints[index.places[place] - 1] != wanted:
        place = next_place(index, place)
    return place


@inlined
def insert(index: Index, prints: Array, slot: int) -> None:
    """Insert the slot, whose fingerprint is already in `prints`."""
    place = home(index, prints[slot])
    while index.places[place] != 0:
        place = next_place(index, place)
    index.places[place] = slot + 1


@inlined
def remove(index: Index, prints: Array, slot: int) -> None:
    """Remove the slot, and move later entries back so that no probing ends before the entry that it looks for."""
    hole = home(index, prints[slot])
    while index.places[hole] != slot + 1:
        hole = next_place(index, hole)
    place = next_place(index, hole)
    while index.places[place] != 0:
        # An entry may move into the hole only if the hole is not before the entry's home.
        wanted = home(index, prints[index.places[place] - 1])
        if ((place - wanted) & (len(index.places) - 1)) >= ((place - hole) & (len(index.places) - 1)):
            index.places[hole] = index.places[place]
            hole = place
        place = next_place(index, place)
    index.places[hole] = 0
