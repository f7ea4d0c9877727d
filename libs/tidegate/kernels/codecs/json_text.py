"""Recognition of JSON values, and base64 for bytes that are not JSON.

JSON is what the grammar of RFC 8259 defines: any value, in UTF-8 without a byte order mark, with white space around it.
Escapes of lone surrogates, numbers of any size and duplicate keys are within the grammar; of duplicate keys the last
one counts. Nesting is followed down to DEPTH; text with deeper nesting is not treated as JSON. Everything that reads
JSON values uses this module. Bytes that are not JSON are written as a string of base64 (RFC 4648, padded).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.utf8 import character_end, utf8_byte, utf8_size
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.compiled.words import WORD, first_byte, word_at

DEPTH = 1024
"""Maximum nesting of arrays and objects."""

QUOTE, BACKSLASH, _COMMA, _COLON, MINUS, _PLUS, DOT, ZERO = (ord(sign) for sign in '"\\,:-+.0')
_ARRAY, _ARRAY_END, OBJECT, _OBJECT_END = (ord(sign) for sign in "[]{}")
_E, _U, _TRUE, _FALSE, _NULL = (int.from_bytes(word, "little") for word in (b"e", b"u", b"true", b"false", b"null"))
_CONTROL_NAMES, _CONTROLS = tuple(b"bfnrt"), tuple(b"\b\f\n\r\t")
_HIGH_SURROGATE, _LOW_SURROGATE = 0xD800, 0xDC00
_ESCAPED = tuple(ord(sign) for sign in '"\\/bfnrt')

_ONES = 0x0101_0101_0101_0101
_HIGHS = -0x7F7F_7F7F_7F7F_7F80
_LOWS = 0x7F7F_7F7F_7F7F_7F7F
_QUOTES, _BACKSLASHES, _SPACES, _ZEROS, _NINES = QUOTE * _ONES, BACKSLASH * _ONES, 32 * _ONES, ZERO * _ONES, 9 * _ONES
"""Words of eight equal bytes."""

VALUE, VALUE_OR_END, KEY, KEY_OR_END, AFTER = range(5)
"""What may come next. AFTER: a comma, or the end of the innermost open array or object."""

_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PAD, _NO_DIGIT = ord("="), 64
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
_DIGITS[_BASE64] = np.arange(64)


@inlined
def is_json(data: Array, start: int, length: int, open_at: Array) -> bool:
    """Return whether the bytes are JSON. `open_at`: uint8[DEPTH], scratch."""
    end = start + length
    at = space_end(data, start, end)
    depth = 0
    expected = VALUE
    while 0 <= at < end and (depth > 0 or expected != AFTER):  # one iteration per member of an object
        if expected == KEY or expected == KEY_OR_END:
            at, depth, expected = read_key(data, at, end, depth, expected)
            at = space_end(data, at, end)
        if 0 <= at < end and (expected == VALUE or expected == VALUE_OR_END):
            at, depth, expected = read_value(data, at, end, depth, expected, open_at)
            at = space_end(data, at, end)
        if 0 <= at < end and expected == AFTER and depth > 0:
            at, depth, expected = read_after_value(data, at, depth, open_at)
            at = space_end(data, at, end)
    return bool(at == end and depth == 0 and expected == AFTER)


@inlined
def is_named(data: Array, at: int, names: Array, start: int, length: int) -> bool:
    """Return whether the string at `at`, after its opening quote, is `names[start : start + length]`, in UTF-8.

    The string is complete.
    """
    place, end = start, start + length
    while data[at] != QUOTE:
        if data[at] == BACKSLASH:
            character, at = unescaped(data, at + 1)
            size = utf8_size(character)
            for byte in range(size):
                if place == end or names[place] != utf8_byte(character, size, byte):
                    return False
                place += 1
        else:
            if place == end or names[place] != data[at]:
                return False
            at += 1
            place += 1
    return bool(place == end)


@inlined
def escape_at(data: Array, at: int, end: int) -> Any:
    """Return the position of the first backslash in `data[at:end]`, `end` if there is none."""
    while at < end and at + WORD <= len(data):  # a word may reach beyond the value, but not beyond the bytes
        found = _backslashes(word_at(data, at))
        if found != 0:
            return min(at + first_byte(found), end)
        at += WORD
    while at < end and data[at] != BACKSLASH:
        at += 1
    return min(at, end)


@inlined
def unescaped(data: Array, at: int) -> Any:
    """Return the character of the escape whose backslash is before `at`, and the position after the escape."""
    if data[at] != _U:
        for escape in range(len(_CONTROLS)):
            if data[at] == _CONTROL_NAMES[escape]:
                return wide(_CONTROLS[escape]), at + 1
        return wide(data[at]), at + 1
    first, at = _hexadecimal(data, at + 1), at + 5
    if first >> 10 == _HIGH_SURROGATE >> 10 and data[at] == BACKSLASH and data[at + 1] == _U:
        second = _hexadecimal(data, at + 2)
        if second >> 10 == _LOW_SURROGATE >> 10:
            return 0x10000 + ((first & 0x3FF) << 10) + (second & 0x3FF), at + 6
    return first, at


@inlined
def _hexadecimal(data: Array, at: int) -> Any:
    """Return the number that the four hexadecimal digits at `at` stand for."""
    number = wide(0)
    for place in range(at, at + 4):
        digit = wide(data[place])
        number = number << 4 | (digit - ZERO if digit < ZERO + 10 else (digit | 32) - 87)
    return number


@inlined
def read_value(data: Array, at: int, end: int, depth: int, expected: int, open_at: Array) -> Any:
    """Read the value at `at`; return the position after it (-1: no value), the depth, and what may come next.

    For an array or an object, the position is inside it.
    """
    byte = data[at]
    if byte == _ARRAY or byte == OBJECT:
        if depth == len(open_at):
            return -1, depth, expected
        open_at[depth] = byte
        return at + 1, depth + 1, VALUE_OR_END if byte == _ARRAY else KEY_OR_END
    if byte == _ARRAY_END and expected == VALUE_OR_END:
        return at + 1, depth - 1, AFTER
    return scalar_end(data, at, end), depth, AFTER


@inlined
def read_key(data: Array, at: int, end: int, depth: int, expected: int) -> Any:
    """Read the key at `at` and its colon, or the end of an empty object; return the position after it, -1 for neither.

    Also return the depth and what may come next.
    """
    if data[at] == _OBJECT_END and expected == KEY_OR_END:
        return at + 1, depth - 1, AFTER
    at = _string_end(data, at + 1, end) if data[at] == QUOTE else -1
    at = space_end(data, at, end)
    found = 0 <= at < end and data[at] == _COLON
    return at + 1 if found else -1, depth, VALUE


@inlined
def read_after_value(data: Array, at: int, depth: int, open_at: Array) -> Any:
    """Read a comma or the end of the open array or object; return the position after it, -1 for neither.

    Also return the depth and what may come next.
    """
    inside = open_at[depth - 1]
    if data[at] == _COMMA:
        return at + 1, depth, VALUE if inside == _ARRAY else KEY
    if data[at] == (_ARRAY_END if inside == _ARRAY else _OBJECT_END):
        return at + 1, depth - 1, AFTER
    return -1, depth, AFTER


@inlined
def scalar_end(data: Array, at: int, end: int) -> Any:
    """Return the position after the string, number or word at `at`; -1 if there is none."""
    byte = data[at]
    if byte == QUOTE:
        return _string_end(data, at + 1, end)
    if byte == _TRUE & 255:
        return _word_end(data, at, end, _TRUE, 4)
    if byte == _FALSE & 255:
        return _word_end(data, at, end, _FALSE, 5)
    if byte == _NULL & 255:
        return _word_end(data, at, end, _NULL, 4)
    return _number_end(data, at, end)


@inlined
def space_end(data: Array, at: int, end: int) -> Any:
    """Return the position after the white space at `at`; -1 stays -1."""
    while 0 <= at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@inlined
def _word_end(data: Array, at: int, end: int, word: int, length: int) -> Any:
    if at + length > end:
        return -1
    for place in range(length):
        if data[at + place] != (word >> 8 * place) & 255:
            return -1
    return at + length


@inlined
def _number_end(data: Array, at: int, end: int) -> Any:
    if data[at] == MINUS:
        at += 1
    at = at + 1 if at < end and data[at] == ZERO else _digits_end(data, at, end)
    if 0 <= at < end and data[at] == DOT:
        at = _digits_end(data, at + 1, end)
    if 0 <= at < end and data[at] | 32 == _E:
        at += 1
        if at < end and (data[at] == MINUS or data[at] == _PLUS):
            at += 1
        at = _digits_end(data, at, end)
    return at


@inlined
def _digits_end(data: Array, at: int, end: int) -> Any:
    """Return the position after the digits at `at`; -1 if there is no digit."""
    start = at
    while at < end and at + WORD <= len(data):  # a word may reach beyond the value, but not beyond the bytes
        others = _others_than_digits(word_at(data, at))
        at += WORD if others == 0 else first_byte(others)
        if others != 0:
            return min(at, end) if at > start else -1
    while at < end and ZERO <= data[at] < ZERO + 10:
        at += 1
    return min(at, end) if at > start else -1


@inlined
def _string_end(data: Array, at: int, end: int) -> Any:
    """Return the position after the string's closing quote, or -1; `at` is after its opening quote."""
    while 0 <= at:
        at = _plain_end(data, at, end)
        if at == end:
            return -1
        byte = data[at]
        if byte == QUOTE:
            return at + 1
        at = _escape_end(data, at + 1, end) if byte == BACKSLASH else character_end(data, at, end)
    return -1


@inlined
def _plain_end(data: Array, at: int, end: int) -> Any:
    """Return the position after all characters that are one byte and stand for themselves."""
    while at < end and at + WORD <= len(data):  # a word may reach beyond the value, but not beyond the bytes
        others = _others_than_plain(word_at(data, at))
        if others != 0:
            return min(at + first_byte(others), end)
        at += WORD
    while at < end and 32 <= data[at] < 128 and data[at] != QUOTE and data[at] != BACKSLASH:
        at += 1
    return min(at, end)


@inlined
def _others_than_plain(word: int) -> Any:
    """Return a word whose first byte that is not 0 is the first that is not from 32 to 127, a quote or a backslash.

    A subtraction sets the highest bit of a byte that was too small. It borrows from the bytes after that one, which
    therefore say nothing.
    """
    low = word & _LOWS
    return (word | low - _SPACES | (low ^ _QUOTES) - _ONES | (low ^ _BACKSLASHES) - _ONES) & _HIGHS


@inlined
def _backslashes(word: int) -> Any:
    """Return a word whose first byte that is not 0 is the first backslash; see `_others_than_plain`."""
    others = word ^ _BACKSLASHES
    low = others & _LOWS | others >> 7 & _ONES  # 0 for backslashes alone
    return (low - _ONES) & _HIGHS


@inlined
def _others_than_digits(word: int) -> Any:
    """Return a word whose first byte that is not 0 is the first that is no digit; see `_others_than_plain`."""
    return (word | _NINES - (word & _LOWS ^ _ZEROS)) & _HIGHS


@inlined
def _escape_end(data: Array, at: int, end: int) -> Any:
    """Return the position after the escape whose backslash is before `at`; -1 if it is not a valid escape."""
    if at == end:
        return -1
    if data[at] != _U:
        return at + 1 if data[at] in _ESCAPED else -1
    if at + 4 >= end:
        return -1
    for place in range(at + 1, at + 5):
        digit = ZERO <= data[place] < ZERO + 10
        if not (digit or 97 <= data[place] | 32 <= 102):
            return -1
    return at + 5


@inlined
def base64_size(length: int) -> Any:
    """Return the number of base64 characters for that many bytes."""
    return (length + 2) // 3 * 4


@inlined
def write_base64(data: Array, start: int, length: int, out: Array, at: int) -> Any:
    """Write the bytes in base64 at `at`, and return the position after them."""
    whole = length // 3 * 3
    for place in range(start, start + whole, 3):
        bits = wide(data[place]) << 16 | wide(data[place + 1]) << 8 | wide(data[place + 2])
        _write_digits(bits, 4, out, at)
        at += 4
    if whole < length:
        left = length - whole
        second = wide(data[start + whole + 1]) if left == 2 else 0
        _write_digits(wide(data[start + whole]) << 16 | second << 8, left + 1, out, at)
        for pad in range(left + 1, 4):
            out[at + pad] = _PAD
        at += 4
    return at


@inlined
def _write_digits(bits: int, count: int, out: Array, at: int) -> None:
    """Write the first `count` base64 digits of 24 bits at `at`."""
    for digit in range(count):
        out[at + digit] = _BASE64[bits >> (18 - 6 * digit) & 63]


@inlined
def read_base64(data: Array, at: int, end: int, out: Array, first: int) -> Any:
    """Write the bytes for which the base64 `data[at:end]` stands to `out`, from `first` on; return how many.

    Return -1 if it is none. `out` has room for as many bytes as the base64 has, and may be `data` at the same place.
    """
    if (end - at) % 4 != 0:
        return wide(-1)
    pads = wide(0)
    while pads < 2 and at < end and data[end - 1 - pads] == _PAD:
        pads += 1
    found, written = wide(0), first
    for group in range(at, end, 4):
        bits = wide(0)
        for place in range(group, group + 4):
            digit = wide(_DIGITS[data[place]]) if place < end - pads else wide(0)
            found |= digit
            bits = bits << 6 | digit & 63
        for byte in range(3):
            out[written + byte] = bits >> (16 - 8 * byte) & 255
        written += 3
    return written - first - pads if found < _NO_DIGIT else wide(-1)
