"""The kernel that reads Avro values: it runs a program over each of them.

An instruction has a code, a slot (the column that it fills; NO_SLOT: the value is skipped), an argument and a target.
Every byte that is read lies inside of its value, and a value must end where its program ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.registry_format import PREFIX, UNREAD, schema_number
from tidegate.kernels.codecs.slots import Slots
from tidegate.kernels.codecs.varints import FAILED, four_bytes, read_varint, zigzag
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import WORD, word_at

LONG, INT, BOOL, FLOAT, DOUBLE, AS_DOUBLE, SPAN, FIXED, ENUM, UNION, JUMP, NULL, PRESENT, CONSTANT = range(14)
BEGIN, BLOCK, END, FAIL = range(14, 18)
"""LONG and INT: a zigzag number. AS_DOUBLE: one that the reader wants as a float. SPAN: bytes behind their length.
FIXED: `argument` bytes. ENUM: one of `argument` symbols, by the table at `target`. UNION: one of `argument` branches,
whose instructions the table at `target` names. JUMP: to `target`. NULL: the slots from `slot` to `argument` are null.
PRESENT: a record is there. CONSTANT: the number and the length in the table at `target`. BEGIN, END: of what becomes a
span of its own, at the nesting depth `argument`. BLOCK: the next item of an array or a map at that depth; at its end
to `target`. FAIL: the reader's schema has no such value."""

NO_SLOT = -1
DEPTH = 64
"""Maximum nesting of arrays and maps, and of what else becomes a span."""
MANY = 65_536
"""Maximum number of items that take no bytes, such as nulls, in one block."""

UNREADABLE, MALFORMED = 1, 2
"""Why a value was not read: the reader's schema has no such value, or its bytes are not of the writer's schema."""

_NOT_READABLE = -2


class Program(NamedTuple):
    """Instructions, one per place of the first four arrays, and the table that they refer to."""

    code: Array
    slot: Array
    argument: Array
    target: Array
    table: Array


class Scratch(NamedTuple):
    """What the kernel needs while it reads a value, by depth; and a float in its bytes."""

    left: Array
    began: Array
    bits: Array
    float: Array

    @classmethod
    def new(cls) -> Scratch:
        """Return scratch memory."""
        bits = np.zeros(1, np.int32)
        return cls(np.zeros(DEPTH, np.int64), np.zeros(DEPTH, np.int64), bits, bits.view(np.float32))


def run(
    data: Array, start: Array, length: Array, number: int, program: Program, found: Slots, code: Array, first: int
) -> None:
    """Read into the slots those UNREAD values `data[start : start + length]` which name the schema of that number.

    Their code becomes 0, or `first + UNREADABLE` or `first + MALFORMED`. A value with code 0 has filled every slot.
    """
    _run(data, start, length, number, program, found, code, first, Scratch.new())


@compiled_in_place
def _run(
    data: Array,
    starts: Array,
    lengths: Array,
    number: int,
    program: Program,
    found: Slots,
    code: Array,
    first: int,
    scratch: Scratch,
) -> None:
    for row in range(len(code)):
        start, length = wide(starts[row]), wide(lengths[row])
        if code[row] == UNREAD and schema_number(data, start, length) == number:
            end = start + length
            at = _read(data, start + PREFIX, end, row, program, found, scratch)
            code[row] = 0 if at == end else first + (UNREADABLE if at == _NOT_READABLE else MALFORMED)


@inlined
def _read(data: Array, at: int, end: int, row: int, program: Program, found: Slots, scratch: Scratch) -> Any:
    """Run the program over one value; return where it has ended, or a negative number."""
    place = wide(0)
    while 0 <= at and place < len(program.code):
        code, slot = wide(program.code[place]), wide(program.slot[place])
        argument, target = wide(program.argument[place]), wide(program.target[place])
        place += 1
        if code == LONG or code == INT or code == AS_DOUBLE:
            number, at = _number(data, at, end)
            if code == INT and not -(2**31) <= number < 2**31:
                at = wide(FAILED)
            if slot >= 0:
                found.length[slot, row] = 0
                if code == AS_DOUBLE:
                    found.floats[slot, row] = np.float64(number)
                else:
                    found.number[slot, row] = number
        elif code == SPAN:
            size, at = _number(data, at, end)
            if at >= 0 and 0 <= size <= end - at:
                if slot >= 0:
                    found.number[slot, row], found.length[slot, row] = at, size
                at += size
            else:
                at = wide(FAILED)
        elif code == DOUBLE:
            if end - at < WORD:
                at = wide(FAILED)
            else:
                if slot >= 0:
                    found.number[slot, row], found.length[slot, row] = word_at(data, at), 0
                at += WORD
        elif code == UNION:
            branch, at = _number(data, at, end)
            if at >= 0 and 0 <= branch < argument:
                place = wide(program.table[target + branch])
            else:
                at = wide(FAILED)
        elif code == JUMP:
            place = target
        elif code == NULL:
            for each in range(slot, argument):
                found.number[each, row], found.length[each, row] = 0, -1
        elif code == PRESENT:
            found.number[slot, row], found.length[slot, row] = 0, 0
        elif code == BOOL:
            if at >= end or data[at] > 1:
                at = wide(FAILED)
            else:
                if slot >= 0:
                    found.number[slot, row], found.length[slot, row] = data[at], 0
                at += 1
        elif code == FLOAT:
            if end - at < 4:
                at = wide(FAILED)
            else:
                if slot >= 0:
                    scratch.bits[0] = four_bytes(data, at)
                    found.floats[slot, row], found.length[slot, row] = scratch.float[0], 0
                at += 4
        elif code == FIXED:
            if argument > end - at:
                at = wide(FAILED)
            else:
                if slot >= 0:
                    found.number[slot, row], found.length[slot, row] = at, argument
                at += argument
        elif code == ENUM:
            number, at = _number(data, at, end)
            if at >= 0 and not 0 <= number < argument:
                at = wide(FAILED)
            elif at >= 0 and slot >= 0:
                number = wide(program.table[target + number])
                found.number[slot, row], found.length[slot, row] = number, 0
                if number < 0:
                    at = wide(_NOT_READABLE)
        elif code == CONSTANT:
            found.number[slot, row] = program.table[target]
            found.length[slot, row] = program.table[target + 1]
        elif code == BEGIN:
            scratch.left[argument], scratch.began[argument] = 0, at
        elif code == BLOCK:
            at = _block(data, at, end, argument, slot, scratch)
            if scratch.left[argument] == 0:
                place = target
            else:
                scratch.left[argument] -= 1
        elif code == END:
            began = wide(scratch.began[argument])
            found.number[slot, row], found.length[slot, row] = began, at - began
        else:
            at = wide(_NOT_READABLE)
    return at


@inlined
def _number(data: Array, at: int, end: int) -> Any:
    """Return the zigzag number at that position, and the position behind it; negative if there is none."""
    bits, at = read_varint(data, at, end)
    return zigzag(bits), at


@inlined
def _block(data: Array, at: int, end: int, depth: int, empty: int, scratch: Scratch) -> Any:
    """Read the number of items of the next block, unless items are left. `empty`: 1 if items take no bytes.

    Return the position behind it. No items are left where the last block has ended.
    """
    while at >= 0 and scratch.left[depth] == 0:
        count, at = _number(data, at, end)
        if at >= 0 and count < 0:
            size, at = _number(data, at, end)
            count = -count
            if size < 0 or size > end - at or count < 0:
                at = wide(FAILED)
        if at < 0 or count == 0:
            return at
        if count > (MANY if empty == 1 else end - at):
            return wide(FAILED)
        if empty == 0:
            scratch.left[depth] = count
    return at
