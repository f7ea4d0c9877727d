"""The kernel that writes Avro values: it runs a program over the slots of each row.

An instruction has a code, a slot, an argument and a target, as those that read. A row whose value does not fit is null,
and its code is 1 + the slot that does not fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.avro.program import Program, Scratch
from tidegate.kernels.codecs.slots import Slots
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import copy_bytes
from tidegate.kernels.record_format.varint import write_varint

LONG, INT, BOOL, FLOAT, DOUBLE, SPAN, REQUIRED, OPTIONAL = range(8)
"""LONG, INT: a zigzag number. SPAN: bytes behind their length. REQUIRED: fails at a null. OPTIONAL: the branch of
a union with null, `argument` for a null, which goes to `target`."""

LONGEST = 10
"""The most bytes that a number takes."""


@compiled_in_place
def write_rows(
    data: Array, given: Slots, program: Program, prefix: Array, out: Array, ends: Array, code: Array, scratch: Scratch
) -> None:
    """Write the rows one after the other, but those that have a code; `ends[row + 1]` is where a row ends."""
    at = wide(0)
    for row in range(len(code)):
        first = at
        if code[row] == 0:
            copy_bytes(prefix, 0, out, at, len(prefix))
            at = _write(data, given, program, out, at + len(prefix), row, scratch)
        if at < 0:
            code[row], at = -at, first
        ends[row + 1] = at


@inlined
def _write(data: Array, given: Slots, program: Program, out: Array, at: int, row: int, scratch: Scratch) -> Any:
    """Write one value; return where it ends, or the negative of 1 + the slot that does not fit."""
    place = wide(0)
    while at >= 0 and place < len(program.code):
        code, slot = wide(program.code[place]), wide(program.slot[place])
        argument, target = wide(program.argument[place]), wide(program.target[place])
        number, length = wide(given.number[slot, row]), wide(given.length[slot, row])
        place += 1
        if code == LONG:
            at = write_varint(out, at, number)
        elif code == INT:
            at = write_varint(out, at, number) if -(2**31) <= number < 2**31 else wide(-1 - slot)
        elif code == SPAN:
            at = write_varint(out, at, length)
            copy_bytes(data, number, out, at, length)
            at += length
        elif code == REQUIRED:
            if length < 0:
                at = wide(-1 - slot)
        elif code == OPTIONAL:
            out[at] = 2 * argument if length < 0 else 2 - 2 * argument
            at += 1
            if length < 0:
                place = target
        elif code == BOOL:
            out[at] = number
            at += 1
        elif code == FLOAT:
            scratch.float[0] = given.floats[slot, row]
            if np.isinf(scratch.float[0]) and not np.isinf(given.floats[slot, row]):
                at = wide(-1 - slot)
            else:
                at = _little_endian(out, at, wide(scratch.bits[0]), 4)
        else:
            at = _little_endian(out, at, number, 8)
    return at


@inlined
def _little_endian(out: Array, at: int, bits: int, width: int) -> Any:
    for byte in range(width):
        out[at + byte] = (bits >> (8 * byte)) & 255
    return at + width
