"""Recognition of UTF-8, and the bytes of single characters. Bytes below 128 are looked at eight at a time."""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.compiled.words import WORD, first_byte, word_at

_HIGHS = -0x7F7F_7F7F_7F7F_7F80
"""The highest bit of each byte of a word."""


@inlined
def is_utf8(data: Array, at: int, end: int) -> bool:
    """Return whether the bytes `data[at:end]` are characters in UTF-8."""
    while 0 <= at < end:
        at = _ascii_end(data, at, end)
        if at < end:
            at = character_end(data, at, end)
    return bool(at >= 0)


@inlined
def _ascii_end(data: Array, at: int, end: int) -> Any:
    """Return the position of the first byte that is 128 or more, `end` if there is none."""
    while at < end and at + WORD <= len(data):  # a word may reach beyond the text, but not beyond the bytes
        others = word_at(data, at) & _HIGHS
        if others != 0:
            return min(at + first_byte(others), end)
        at += WORD
    while at < end and data[at] < 128:
        at += 1
    return min(at, end)


@inlined
def character_end(data: Array, at: int, end: int) -> Any:
    """Return the position after a character of two to four bytes, or -1.

    The character must have its shortest form, be no surrogate, and be at most U+10FFFF.
    """
    first = wide(data[at])
    if first < 0xC2 or first > 0xF4:
        return -1
    length = 2 + (first >= 0xE0) + (first >= 0xF0)
    if at + length > end:
        return -1
    for place in range(at + 1, at + length):
        if data[place] & 0xC0 != 0x80:
            return -1
    second = data[at + 1]
    too_long = (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90)
    too_large = (first == 0xED and second > 0x9F) or (first == 0xF4 and second > 0x8F)
    return -1 if too_long or too_large else at + length


@inlined
def utf8_size(character: int) -> Any:
    return 1 + (character >= 0x80) + (character >= 0x800) + (character >= 0x10000)


@inlined
def utf8_byte(character: int, size: int, place: int) -> Any:
    """Return the byte number `place` of the character in UTF-8, which takes `size` bytes."""
    rest = character >> 6 * (size - 1 - place)
    if place > 0:
        return 0x80 | (rest & 0x3F)
    return rest if size == 1 else rest | (0xF00 >> size & 0xFF)
