"""Which message type of its schema a value names: indexes behind the number of the schema, in one number.

They lead from the outermost message type to the one that is meant. No indexes are those of the first message type.
"""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs import registry_format
from tidegate.kernels.codecs.registry_format import PREFIX, UNREAD, schema_number
from tidegate.kernels.codecs.varints import FAILED, read_varint, zigzag
from tidegate.kernels.compiled import compiled_in_place, inlined, wide

_DIGITS, _DEEPEST = 10, 6
"""The bits of each index, and how many of them there may be."""

REASONS = (*registry_format.REASONS, "value: names no message of its schema")
"""The reasons of values that name no message type; the last one is that of NO_MESSAGE."""
NO_MESSAGE = len(REASONS)

NONE = (-1, -1)
"""The number and the path where no value is UNREAD."""


def indexes_of(path: int) -> list[int]:
    """Return the indexes that lead to a message type, the outermost first."""
    found = []
    while path:
        found.append(path % 2**_DIGITS - 1)
        path >>= _DIGITS
    return found[::-1]


@inlined
def read_path(data: Array, start: int, length: int) -> Any:
    """Return the path behind the prefix of a value, and the position behind it, which is FAILED if there is none."""
    end = start + length
    bits, at = read_varint(data, start + PREFIX, end)
    count, path = zigzag(bits), wide(1 if bits == 0 else 0)
    if not 0 <= count <= _DEEPEST:
        at = wide(FAILED)
    while at >= 0 and count > 0:
        bits, at = read_varint(data, at, end)
        index = zigzag(bits)
        if not 0 <= index < 2**_DIGITS - 1:
            at = wide(FAILED)
        path = (path << _DIGITS) | (index + 1)
        count -= 1
    return path, at


@compiled_in_place
def next_message(data: Array, starts: Array, lengths: Array, code: Array) -> tuple[Any, Any]:
    """Return the schema and the path that the first UNREAD value names, NONE if there is none.

    Values before it that name no message type get their codes.
    """
    for row in range(len(code)):
        if code[row] == UNREAD:
            start, length = wide(starts[row]), wide(lengths[row])
            number = schema_number(data, start, length)
            if number < 0:
                code[row] = -number
                continue
            path, at = read_path(data, start, length)
            if at >= 0:
                return number, path
            code[row] = NO_MESSAGE
    return wide(-1), wide(-1)
