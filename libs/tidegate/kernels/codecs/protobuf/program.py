"""The kernel that reads Protobuf values: it looks up each field of a message in the table of its message type.

Fields come in any order and any number of times: the last one counts, and messages are merged. Each one must be valid,
whether it counts or not. Every byte that is read lies inside of its message. Fields without an entry, or with another
wire type than theirs, are skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.slots import Slots
from tidegate.kernels.codecs.utf8 import is_utf8
from tidegate.kernels.codecs.varints import FAILED, four_bytes, read_varint, zigzag
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import WORD, word_at

VARINT, EIGHT, LENGTH, GROUP, END, FOUR = range(6)
"""The wire types: END is that of the end of a group."""

AS_IS, INT32, UINT32, ZIGZAG32, ZIGZAG64, BOOL, CLOSED, SPAN, TEXT, MESSAGE, PACKED, PACKED_4, PACKED_8 = range(13)
"""What is done with a field: its 64 bits, or the low 32 of them. CLOSED: an INT32 that counts only if the table at
`target` has it. SPAN: bytes. TEXT: a SPAN that is UTF-8. MESSAGE: of type `target`. PACKED: the varints, or the numbers
of 4 or 8 bytes, of a repeated field are only checked."""

NO_SLOT = -1
DEPTH = 100
"""Maximum nesting of messages and groups, which is that of Google's library."""

_LARGEST_TAG = 2**32 - 1


class Program(NamedTuple):
    """The fields of each message type: those of type M are `first[M] : first[M + 1]`, by number.

    `choice`, `choice_end`: the slots of the fields of which only one is set; equal if there are none.
    """

    first: Array
    number: Array
    wire: Array
    kind: Array
    slot: Array
    after: Array
    choice: Array
    choice_end: Array
    target: Array
    table: Array


class Scratch(NamedTuple):
    """The messages that are open, by depth: where each ends, its type, and the number of the group that it is, or 0."""

    end: Array
    type: Array
    group: Array


def run(data: Array, start: Array, end: Array, rows: Array, program: Program, found: Slots, wrong: Array) -> None:
    """Read the values `data[start[row] : end[row]]` of these rows into the slots.

    `wrong` becomes true for rows that are no value of that type.
    """
    scratch = Scratch(*(np.zeros(DEPTH + 1, np.int64) for _ in Scratch._fields))
    _run(data, start, end, rows, program, found, wrong, scratch)


@compiled_in_place
def _run(
    data: Array,
    starts: Array,
    ends: Array,
    rows: Array,
    program: Program,
    found: Slots,
    wrong: Array,
    scratch: Scratch,
) -> None:
    for each in range(len(rows)):
        row = wide(rows[each])
        scratch.end[0] = ends[row]
        wrong[row] = _read(data, wide(starts[row]), row, program, found, scratch) < 0


@inlined
def _read(data: Array, at: int, row: int, program: Program, found: Slots, scratch: Scratch) -> Any:
    """Read one value; return where it has ended, or FAILED."""
    depth, last = wide(0), wide(0)
    while at >= 0:
        end = wide(scratch.end[depth])
        if at == end and scratch.group[depth] == 0:
            if depth == 0:
                return at
            depth -= 1
            continue
        tag, at = read_varint(data, at, end)
        wire, number, bits, size = tag & 7, tag >> 3, wide(0), wide(0)
        if at < 0 or number == 0 or not 0 <= tag <= _LARGEST_TAG:
            return wide(FAILED)
        if wire == VARINT:
            bits, at = read_varint(data, at, end)
        elif wire == LENGTH:
            size, bits = read_varint(data, at, end)
            at = bits + size if bits >= 0 and 0 <= size <= end - bits else wide(FAILED)
        elif wire == EIGHT:
            bits = word_at(data, at) if end - at >= WORD else wide(0)
            at = at + WORD if end - at >= WORD else wide(FAILED)
        elif wire == FOUR:
            bits = four_bytes(data, at) if end - at >= 4 else wide(0)
            at = at + 4 if end - at >= 4 else wide(FAILED)
        elif wire == END:
            if scratch.group[depth] != number:
                return wide(FAILED)
            depth -= 1
            continue
        elif wire != GROUP:
            return wide(FAILED)
        if at < 0:
            return wide(FAILED)
        place = _place(program, wide(scratch.type[depth]), number, last)
        if place >= 0 and program.wire[place] != wire:
            place = wide(NO_SLOT)
        inner = wide(NO_SLOT)
        if place >= 0:
            last = place + 1
            inner, at = _store(data, at, bits, size, row, place, program, found)
        if inner >= 0 or wire == GROUP:
            if depth == DEPTH:
                return wide(FAILED)
            depth += 1
            scratch.type[depth] = inner if inner >= 0 else len(program.first) - 2
            scratch.group[depth] = number if wire == GROUP else 0
            scratch.end[depth] = end if wire == GROUP else at
            at = at if wire == GROUP else bits
    return at


@inlined
def _place(program: Program, type: int, number: int, likely: int) -> Any:
    """Return the entry of the field, NO_SLOT if there is none. `likely`: where it is if fields come in order."""
    first, after = wide(program.first[type]), wide(program.first[type + 1])
    if first <= likely < after and program.number[likely] == number:
        return likely
    for place in range(first, after):
        if program.number[place] == number:
            return wide(place)
    return wide(NO_SLOT)


@inlined
def _store(data: Array, at: int, bits: int, size: int, row: int, place: int, program: Program, found: Slots) -> Any:
    """Put the value into the slot of its field, if it has one.

    Return the type of the message that begins, NO_SLOT if none does, and the position behind the value.
    """
    kind, slot, after = wide(program.kind[place]), wide(program.slot[place]), wide(program.after[place])
    target = wide(program.target[place])
    if kind == CLOSED and not _has(program.table, target, _low_32(bits)):
        return wide(NO_SLOT), at
    if kind == TEXT and not is_utf8(data, bits, at):
        return wide(NO_SLOT), wide(FAILED)
    for each in range(program.choice[place], program.choice_end[place]):
        if not slot <= each < after:
            found.length[each, row] = -1
    if kind >= PACKED:
        return wide(NO_SLOT), at if _is_packed(data, bits, size, kind) else wide(FAILED)
    if slot >= 0:
        found.length[slot, row] = size if kind == SPAN or kind == TEXT else 0
        if kind == AS_IS or kind == SPAN or kind == TEXT:
            found.number[slot, row] = bits
        elif kind == INT32 or kind == CLOSED:
            found.number[slot, row] = _low_32(bits)
        elif kind == UINT32:
            found.number[slot, row] = bits & 0xFFFF_FFFF
        elif kind == ZIGZAG32:
            found.number[slot, row] = _low_32(zigzag(bits & 0xFFFF_FFFF))
        elif kind == ZIGZAG64:
            found.number[slot, row] = zigzag(bits)
        elif kind == BOOL:
            found.number[slot, row] = wide(bits != 0)
    return target if kind == MESSAGE else wide(NO_SLOT), at


@inlined
def _low_32(bits: int) -> Any:
    """Return the low four bytes as an int32."""
    low = bits & 0xFFFF_FFFF
    return low - (1 << 32) if low >= 1 << 31 else low


@inlined
def _has(table: Array, at: int, number: int) -> Any:
    """Return whether the number is in the list at that place, behind the length of the list."""
    for each in range(at + 1, at + 1 + table[at]):
        if table[each] == number:
            return True
    return False


@inlined
def _is_packed(data: Array, at: int, size: int, kind: int) -> Any:
    """Return whether the bytes are numbers of that kind, one after the other."""
    if kind != PACKED:
        return size % (4 if kind == PACKED_4 else WORD) == 0
    end = at + size
    while 0 <= at < end:
        _, at = read_varint(data, at, end)
    return at == end
