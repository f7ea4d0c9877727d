"""The kernel that writes Protobuf values: it runs a program over the slots of each row.

A message has its length before its fields. So a value is written from its end: when its fields are there, a message
writes how long they are. The program has the fields in falling order, which gives them rising numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.slots import Slots
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import copy_bytes

NUMBER, FOUR, EIGHT, SPAN, END, BEGIN = range(6)
"""How an instruction writes its slot. NUMBER: a varint. FOUR, EIGHT: so many bytes, the lowest first. SPAN: bytes and
their length. END: of a message, which comes first; one that is not there goes on at `target`. BEGIN: its length."""

LONGEST = 20
"""The most bytes of a field beside its span: its tag, and a number or a length."""

_LOW_57 = 2**57 - 1


class Program(NamedTuple):
    """The instructions. `tag`: number and wire type of the field. `is_implied`: zero and empty are left out."""

    code: Array
    slot: Array
    tag: Array
    is_implied: Array
    target: Array


@compiled_in_place
def write_rows(
    data: Array, given: Slots, program: Program, prefix: Array, code: Array, out: Array, starts: Array, ends: Array
) -> None:
    """Write the rows with code 0, the last one first, up to the end of `out`; `starts[row]` is where a row begins.

    `ends`: room for the ends of the messages that are open.
    """
    at = wide(len(out))
    for back in range(len(code)):
        row = len(code) - 1 - back
        if code[row] == 0:
            at = _write(data, given, program, out, at, row, ends) - len(prefix)
            copy_bytes(prefix, 0, out, at, len(prefix))
        starts[row] = at


@inlined
def _write(data: Array, given: Slots, program: Program, out: Array, at: int, row: int, ends: Array) -> Any:
    """Write the fields of one value that ends at `at`; return where they begin."""
    place, depth = wide(0), wide(0)
    while place < len(program.code):
        code, slot = wide(program.code[place]), wide(program.slot[place])
        tag, is_implied = wide(program.tag[place]), program.is_implied[place] != 0
        target = wide(program.target[place])
        number, length = wide(given.number[slot, row]), wide(given.length[slot, row])
        place += 1
        if length < 0:
            place = max(place, target)
        elif code == END:
            ends[depth] = at
            depth += 1
        elif code == BEGIN:
            depth -= 1
            at = _varint(out, _varint(out, at, wide(ends[depth]) - at), tag)
        elif code == SPAN:
            if length > 0 or not is_implied:
                at -= length
                copy_bytes(data, number, out, at, length)
                at = _varint(out, _varint(out, at, length), tag)
        elif number != 0 or not is_implied:
            if code == NUMBER:
                at = _varint(out, at, number)
            else:
                at = _little_endian(out, at, number, 4 if code == FOUR else 8)
            at = _varint(out, at, tag)
    return at


@inlined
def _varint(out: Array, at: int, bits: int) -> Any:
    """Write the 64 bits as a varint that ends at `at`; return where it begins."""
    size, rest = wide(1), (bits >> 7) & _LOW_57
    while rest != 0:
        size += 1
        rest >>= 7
    at -= size
    rest = bits
    for place in range(size - 1):
        out[at + place] = (rest & 127) | 128
        rest = (rest >> 7) & _LOW_57
    out[at + size - 1] = rest & 127
    return at


@inlined
def _little_endian(out: Array, at: int, bits: int, width: int) -> Any:
    at -= width
    for byte in range(width):
        out[at + byte] = (bits >> (8 * byte)) & 255
    return at
