"""Checks of data structures that may have been damaged outside the process.

Every number is checked before it is used as a position in another array, so the checks end normally whatever the arrays
hold. An undamaged state has exactly one form of each structure, up to the order within an index and within the free
chains. `held` says of each slot that was ever used whether it is held; `count` is the number of held slots.
"""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads, time_buffer
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import WORD
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import arena
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.slots import FREE, SlotPool
from tidegate.kernels.payloads import Payloads
from tidegate.kernels.time_buffer import HELD, TimeBuffer
from tidegate.kernels.version_chains import ENTRY, Versions


@inlined
def is_at_its_node(time: TimeBuffer, slot: int) -> bool:
    """Return whether the heap has the slot at the node that the slot's `position` names."""
    node = wide(time.position[slot])
    return bool(0 <= node < time.numbers[HELD] and time.heap[node] == slot)


@inlined
def take_block(stored: Payloads, slot: int, taken: Array) -> Any:
    """Mark the words of the slot's block as taken, and return how many they are.

    Return 0 if that is impossible: a word is outside the array or taken already, or a length of the slot's record
    cannot be.
    """
    if stored.key_length[slot] < 0 or stored.value_length[slot] < -1 or stored.headers_length[slot] < 0:
        return 0
    words = arena.class_words(arena.size_class(payloads.payload_length(stored, slot)))
    return words if take_words(taken, wide(stored.block[slot]), words) else 0


@inlined
def take_words(taken: Array, first: int, words: int) -> bool:
    """Mark these words as taken; return whether they lie within the array and none was taken before.

    Word 0 is never given out.
    """
    if first < 1 or first + words > len(taken):
        return False
    free = True
    for word in range(first, first + words):
        free = free and not taken[word]
        taken[word] = True
    return free


@inlined
def chain_is_possible(versions: Versions, key: int, taken: Array, longest: int) -> bool:
    """Return whether the key's block has its stated length and overlaps no other, and its chain lies within it.

    `taken`: the words of the chains' blocks. `longest`: how many versions a key may have.
    """
    words = ENTRY * wide(versions.capacity[key])
    if words < ENTRY or arena.class_words(arena.size_class(words * WORD)) != words:
        return False
    if not take_words(taken, wide(versions.block[key]), words):
        return False
    first, length = wide(versions.first[key]), wide(versions.length[key])
    return bool(first >= 0 and 1 <= length <= longest and first + length <= versions.capacity[key])


@compiled_in_place
def is_in_order(time: TimeBuffer) -> bool:
    """Return whether no node of the heap precedes the node above it. The heap's slots are known to be held."""
    for node in range(1, time.numbers[HELD]):
        if time_buffer.leaves_before_above(time, node):
            return False
    return True


@compiled_in_place
def is_indexed(index: Index, prints: Array, held: Array, count: int, seen: Array) -> bool:
    """Return whether the index has each held slot once, nothing else, and no gap between a slot's home and its place.

    A gap is an empty place: probing would stop there. `seen`: as long as `held`, all false.
    """
    last_empty = len(index.places) - 1
    while last_empty >= 0 and index.places[last_empty] != 0:
        last_empty -= 1
    last_empty -= len(index.places)  # probing wraps around: seen from place 0, it lies before the array
    found = 0
    for place in range(len(index.places)):
        slot = wide(index.places[place]) - 1
        if slot == -1:
            last_empty = place
            continue
        if slot < 0 or slot >= len(held) or seen[slot] or not held[slot]:
            return False
        seen[slot] = True
        found += 1
        probed = (place - hash_index.home(index, prints[slot])) & (len(index.places) - 1)
        if probed >= place - last_empty:
            return False
    return bool(found == count and found < len(index.places))


@compiled_in_place
def free_slots_are_whole(pool: SlotPool, held: Array, count: int) -> bool:
    """Return whether the free chain has each slot that is not held, once.

    A chain that ends has no slot twice, so counting its slots is enough.
    """
    left = len(held) - count
    slot = pool.numbers[FREE] - 1
    while left > 0 and 0 <= slot < len(held) and not held[slot]:
        left -= 1
        slot = pool.link[slot] - 1
    return bool(left == 0 and slot == -1)


@compiled_in_place
def free_blocks_are_whole(blocks: Arena, taken: Array) -> bool:
    """Return whether the free chains have each word that no record has, and no other word."""
    free = 0
    for kind in range(arena.CLASSES):
        words = arena.class_words(kind)
        first = blocks.numbers[kind]
        while first != 0:
            if words == 0 or not take_words(taken, first, words):
                return False
            free += words
            first = blocks.words[first]
    return bool(free + blocks.numbers[arena.LIVE] == len(taken) - 1)
