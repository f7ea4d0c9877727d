"""Compiles how values of a message type are read into columns.

Messages that nobody wants are followed, too, and so are packed numbers and text, so that damage is found wherever it
is: whether a value is refused does not depend on the columns. Each message type has one table without slots for that,
and one with slots for each column that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tidegate.kernels.codecs.protobuf import program as kernel
from tidegate.kernels.codecs.protobuf import schemas
from tidegate.kernels.codecs.protobuf.layout import Column, every
from tidegate.kernels.codecs.protobuf.program import NO_SLOT, Program

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

_HOW: dict[int, tuple[int, int]] = {
    **dict.fromkeys((schemas.INT64, schemas.UINT64), (kernel.VARINT, kernel.AS_IS)),
    **dict.fromkeys((schemas.INT32, schemas.ENUM), (kernel.VARINT, kernel.INT32)),
    schemas.UINT32: (kernel.VARINT, kernel.UINT32),
    schemas.SINT32: (kernel.VARINT, kernel.ZIGZAG32),
    schemas.SINT64: (kernel.VARINT, kernel.ZIGZAG64),
    schemas.BOOL: (kernel.VARINT, kernel.BOOL),
    **dict.fromkeys((schemas.FIXED64, schemas.SFIXED64, schemas.DOUBLE), (kernel.EIGHT, kernel.AS_IS)),
    **dict.fromkeys((schemas.SFIXED32, schemas.FLOAT), (kernel.FOUR, kernel.INT32)),
    schemas.FIXED32: (kernel.FOUR, kernel.UINT32),
    **dict.fromkeys((schemas.STRING, schemas.BYTES), (kernel.LENGTH, kernel.SPAN)),
    schemas.MESSAGE: (kernel.LENGTH, kernel.MESSAGE),
    schemas.GROUP: (kernel.GROUP, kernel.MESSAGE),
}
"""The wire type of a field, and what is done with it, by its type."""
_PACKED = {kernel.VARINT: kernel.PACKED, kernel.FOUR: kernel.PACKED_4, kernel.EIGHT: kernel.PACKED_8}


class _Entry(NamedTuple):
    tag: int
    kind: int
    slot: int
    after: int
    choice: int
    choice_end: int
    target: int


def compile_reader(message: Descriptor, layout: Sequence[Column]) -> Program:
    """Return the program that reads values of the message type into the columns."""
    compiler = _Compiler()
    compiler.type_of(message, layout)
    return compiler.compiled([-1 if each.may_be_null else 0 for each in every(layout)])


class _Compiler:
    def __init__(self) -> None:
        self._types: list[list[_Entry]] = []
        self._checked: dict[str, int] = {}
        self._table: list[int] = []

    def compiled(self, absent: Sequence[int]) -> Program:
        """Return what has been compiled; the last type has no fields: it is that of unknown groups."""
        types = [*self._types, []]
        first = np.cumsum([0, *map(len, types)])
        entries = [entry for type in types for entry in type]
        parts = np.array(entries, np.int64).reshape(-1, len(_Entry._fields)).T.copy()
        columns = dict(zip(_Entry._fields, parts, strict=True))
        table = np.array([*self._table, 0], np.int64)
        return Program(first=first, absent=np.array(absent, np.int64), table=table, **columns)

    def type_of(self, message: Descriptor, columns: Sequence[Column]) -> int:
        """Return the number of the message type whose fields become these columns."""
        number = len(self._types)
        self._types.append([])
        if not columns:
            self._checked[message.full_name] = number
        of_number = {column.described.number: column for column in columns}
        fields = sorted(message.fields, key=lambda field: field.number)
        entries = [self._entry(field, of_number.get(field.number), columns) for field in fields]
        self._types[number] = [entry for entry in entries if _is_of_use(entry)]
        return number

    def _entry(self, field: FieldDescriptor, column: Column | None, columns: Sequence[Column]) -> _Entry:
        wire, kind = _HOW[field.type]
        if field.is_repeated and wire in _PACKED:
            wire, kind = kernel.LENGTH, _PACKED[wire]
        target = 0
        if field.enum_type is not None and field.enum_type.is_closed and not field.is_repeated:
            kind, target = kernel.CLOSED, self._values(field.enum_type)
        elif schemas.is_checked_text(field):
            kind = kernel.TEXT
        elif kind == kernel.MESSAGE:
            target = self._inside(field.message_type, () if column is None else column.inside)
        slot, after = (NO_SLOT, NO_SLOT) if column is None or column.is_text else (column.slot, column.after)
        return _Entry(field.number << 3 | wire, kind, slot, after, *_choice(field, columns), target)

    def _inside(self, message: Descriptor, columns: Sequence[Column]) -> int:
        if not columns and message.full_name in self._checked:
            return self._checked[message.full_name]
        return self.type_of(message, columns)

    def _values(self, enum: EnumDescriptor) -> int:
        place = len(self._table)
        self._table += [len(enum.values), *(value.number for value in enum.values)]
        return place


def _choice(field: FieldDescriptor, columns: Sequence[Column]) -> tuple[int, int]:
    """Return the slots of the fields of which only one is set at a time, this one among them."""
    choice = field.containing_oneof
    among = [column for column in columns if choice is not None and column.described.containing_oneof == choice]
    return (among[0].slot, among[-1].after) if among else (0, 0)


def _is_of_use(entry: _Entry) -> bool:
    """Return whether the entry fills or clears slots, or checks bytes."""
    return entry.slot >= 0 or entry.choice < entry.choice_end or entry.kind >= kernel.TEXT
