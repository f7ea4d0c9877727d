"""The kernel that reads Protobuf values: it looks up each field of a message in the table of its message type.

Fields come in any order and any number of times: the last one counts, and messages are merged. Each one must be valid,
whether it counts or not. Every byte that is read lies inside of its message. Fields without an entry, or with another
wire type than theirs, are skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.protobuf.message_paths import read_path
from tidegate.kernels.codecs.registry_format import UNREAD, schema_number
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

_SMALLEST_TAG, _LARGEST_TAG = 1 << 3, 2**32 - 1


class Program(NamedTuple):
    """The fields of each message type: those of type M are `first[M] : first[M + 1]`, by number.

    `absent`: the length of each slot whose field is absent: -1 for a null, 0 for the field's default. `tag`: the number
    and the wire type of a field. `choice`, `choice_end`: the slots of the fields of which only one is set; equal if
    there are none.
    """

    first: Array
    absent: Array
    tag: Array
    kind: Array
    slot: Array
    after: Array
    choice: Array
    choice_end: Array
    target: Array
    table: Array


class Named(NamedTuple):
    """The values to read: those that name this schema, and the message type at this path.

    `readable`: whether its values can be read. `refused`: the code of values that cannot.
    """

    number: int
    path: int
    readable: bool
    refused: int


class Scratch(NamedTuple):
    """The messages that are open, by depth: where each ends, its type, and the number of the group that it is, or 0."""

    end: Array
    type: Array
    group: Array


def run(
    data: Array, start: Array, length: Array, named: Named, program: Program, found: Slots, begin: Array, code: Array
) -> None:
    """Read into the slots those UNREAD values `data[start : start + length]` which name that message type.

    Their code becomes 0, or `named.refused`. `begin` gets where the message of each one begins. A value with code 0 has
    filled every slot.
    """
    scratch = Scratch(*(np.zeros(DEPTH + 1, np.int64) for _ in Scratch._fields))
    _run(data, start, length, named, program, found, begin, code, scratch)


@compiled_in_place
def _run(
    data: Array,
    starts: Array,
    lengths: Array,
    named: Named,
    program: Program,
    found: Slots,
    begin: Array,
    code: Array,
    scratch: Scratch,
) -> None:
    for row in range(len(code)):
        start, length = wide(starts[row]), wide(lengths[row])
        if code[row] == UNREAD and schema_number(data, start, length) == named.number:
            path, at = read_path(data, start, length)
            if at >= 0 and path == named.path:
                begin[row], scratch.end[0] = at, start + length
                _fill(row, program, found)
                is_read = named.readable and _read(data, at, row, program, found, scratch) >= 0
                code[row] = 0 if is_read else named.refused


@inlined
def _fill(row: int, program: Program, found: Slots) -> None:
    """Fill the slots of a row with what they have where their fields are absent."""
    for slot in range(len(program.absent)):
        found.number[slot, row], found.length[slot, row] = 0, program.absent[slot]


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
        if at < 0 or not _SMALLEST_TAG <= tag <= _LARGEST_TAG:
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
        place = _place(program, wide(scratch.type[depth]), tag, last)
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
def _place(program: Program, type: int, tag: int, likely: int) -> Any:
    """Return the entry of the field, NO_SLOT if there is none. `likely`: where it is if fields come in order."""
    first, after = wide(program.first[type]), wide(program.first[type + 1])
    if first <= likely < after and program.tag[likely] == tag:
        return likely
    for place in range(first, after):
        if program.tag[place] == tag:
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
            found.number[each, row], found.length[each, row] = 0, program.absent[each]
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
