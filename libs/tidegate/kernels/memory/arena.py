"""Byte blocks of any length in one flat array, allocated and released in O(1).

Lengths are rounded up to size classes of 8-byte words: 1 to 8 words, then four classes per power of two (at most a
quarter is lost). A released block becomes the head of the free chain of its class, linked through its own first word. A
position is the block's first byte. Word 0 is never given out, so 0 means "no block". When no block of the class is free
and the end of the array is reached, the caller makes room: it packs the blocks if a third of the array is dead, and
grows the array otherwise. So the array is at most three times as long as what was live at the fullest moment, whatever
the lengths were.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined
from tidegate.kernels.compiled.words import WORD, prefetch

CLASSES = 128
USED, LIVE = CLASSES, CLASSES + 1
NUMBERS = CLASSES + 2


class Arena(NamedTuple):
    """The array that blocks are allocated in.

    `data`: the bytes. `words`: the same memory as int64. `numbers`: heads of the free chains by class, words used,
    words live.
    """

    data: Array
    words: Array
    numbers: Array


@inlined
def size_class(length: int) -> Any:
    """Return the size class of a block for that many bytes."""
    words = max(1, (length + WORD - 1) // WORD)
    if words <= 8:
        return words
    power = 3
    while (2 << power) < words:
        power += 1
    quarter = 1 << (power - 2)
    return 8 + 4 * (power - 3) + (words - (1 << power) + quarter - 1) // quarter


@inlined
def class_words(kind: int) -> Any:
    """Return how many words a block of the class has."""
    if kind <= 8:
        return kind
    power = 3 + (kind - 9) // 4
    return (1 << power) + ((kind - 9) % 4 + 1) * (1 << (power - 2))


@inlined
def has_room(arena: Arena, length: int) -> bool:
    """Return whether `allocate` can find a block for that many bytes."""
    kind = size_class(length)
    if arena.numbers[kind] != 0:
        return True
    return bool(max(1, arena.numbers[USED]) + class_words(kind) <= len(arena.words))


@inlined
def allocate(arena: Arena, length: int) -> Any:
    """Return the position of a block for that many bytes; 0 if the array has no room."""
    kind = size_class(length)
    words = class_words(kind)
    first = arena.numbers[kind]
    if first != 0:
        arena.numbers[kind] = arena.words[first]
        prefetch(arena.words, arena.numbers[kind])
    else:
        first = max(1, arena.numbers[USED])
        if first + words > len(arena.words):
            return 0
        arena.numbers[USED] = first + words
    arena.numbers[LIVE] += words
    return first * WORD


@inlined
def release(arena: Arena, position: int, length: int) -> None:
    """Free the block, which was allocated for that many bytes."""
    kind = size_class(length)
    arena.words[position // WORD] = arena.numbers[kind]
    arena.numbers[kind] = position // WORD
    arena.numbers[LIVE] -= class_words(kind)


@inlined
def forget_free_blocks(arena: Arena, end: int) -> None:
    """Record that all words before `end` but word 0 are live, and nothing else is."""
    for kind in range(CLASSES):
        arena.numbers[kind] = 0
    arena.numbers[USED] = end
    arena.numbers[LIVE] = end - 1
