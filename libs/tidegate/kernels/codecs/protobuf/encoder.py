"""Writes typed Arrow columns as Protobuf values in the wire format of a schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.port import CODE, Encoded
from tidegate.kernels.codecs.protobuf import program as kernel
from tidegate.kernels.codecs.protobuf import schemas, writing
from tidegate.kernels.codecs.protobuf.layout import Column, every, layout_of
from tidegate.kernels.codecs.protobuf.schemas import columns_of, message_of, read_schema
from tidegate.kernels.codecs.slots import Slots, slots
from tidegate.kernels.columns import binary_parts

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_SIGNED_32 = (schemas.INT32, schemas.SINT32, schemas.SFIXED32)
_SIGNED_64 = (schemas.INT64, schemas.SINT64, schemas.SFIXED64)
_UNSIGNED_32 = (schemas.UINT32, schemas.FIXED32)
_UNSIGNED_64 = (schemas.UINT64, schemas.FIXED64)
_RANGES = {
    **dict.fromkeys(_SIGNED_32, (-(2**31), 2**31 - 1)),
    **dict.fromkeys(_SIGNED_64, (-(2**63), 2**63 - 1)),
    **dict.fromkeys(_UNSIGNED_32, (0, 2**32 - 1)),
    **dict.fromkeys(_UNSIGNED_64, (0, 2**64 - 1)),
}
"""The smallest and the largest number of integers, by the type of the field."""
_FLOATS = (schemas.FLOAT, schemas.DOUBLE)
_SPANS = {schemas.STRING: (pa.string(), pa.large_string()), schemas.BYTES: (pa.string(), pa.binary())}
_WIRE = {
    **dict.fromkeys(_RANGES, kernel.VARINT),
    **dict.fromkeys((schemas.BOOL, schemas.ENUM), kernel.VARINT),
    **dict.fromkeys((schemas.FIXED32, schemas.SFIXED32, schemas.FLOAT), kernel.FOUR),
    **dict.fromkeys((schemas.FIXED64, schemas.SFIXED64, schemas.DOUBLE), kernel.EIGHT),
    **dict.fromkeys((schemas.STRING, schemas.BYTES, schemas.MESSAGE), kernel.LENGTH),
}
_WRITTEN = {kernel.VARINT: writing.NUMBER, kernel.FOUR: writing.FOUR, kernel.EIGHT: writing.EIGHT}


class ProtobufEncoder:
    """Writes columns as messages of a type. `number`: that under which the schema is registered.

    Each field of the message has a column of its name, or may be absent, and then is. Raise InvalidValue if a column is
    not in the message, or has a type that is not written as that of its field.
    """

    def __init__(self, columns: pa.Schema, schema: str, message: str, number: int) -> None:
        described = message_of(read_schema(schema), message)
        self._layout = layout_of(described, columns_of(described))
        _check(self._layout, pa.struct(columns), "")
        self._program = _compiled(self._layout)
        path = b"".join(_zigzag(each) for each in _path(described))
        self._prefix = np.frombuffer(b"\0" + number.to_bytes(4, "big") + path, np.uint8)
        self._columns = list(every(self._layout))
        self._reasons = [f"its {'.'.join(each.path)} does not fit the schema" for each in self._columns]

    def encode(self, columns: pa.RecordBatch) -> Encoded:
        """Write each row of the columns."""
        rows = columns.num_rows
        filled = _Filled(slots(len(self._columns), rows), np.zeros(rows, CODE))
        filled.fill(self._layout, dict(zip(columns.schema.names, columns.columns, strict=True)), np.ones(rows, bool))
        data = filled.data()
        size = rows * (len(self._prefix) + writing.LONGEST * len(self._columns)) + len(data)
        out, starts = np.empty(size, np.uint8), np.empty(rows, np.int64)
        ends = np.zeros(len(self._columns) + 1, np.int64)
        writing.write_rows(data, filled.given, self._program, self._prefix, filled.code, out, starts, ends)
        first = int(starts[0]) if rows else size
        return Encoded.of(out[first:].copy(), np.append(starts, size) - first, filled.code, self._reasons)


def _check(layout: Sequence[Column], columns: pa.StructType, path: str) -> None:
    named = {column.field.name: column for column in layout}
    for field in columns:
        if field.name not in named:
            remedy = "name the fields of the message alone: {select: {NAME: SQL}}"
            raise InvalidValue(f"{path}{field.name} is no field of the message", remedy)
        _check_type(named[field.name], field.type, path + field.name)
    for name, column in named.items():
        if columns.get_field_index(name) < 0 and not _may_be_absent(column):
            raise InvalidValue(
                f"{path}{name}, a field of the message, is missing", "add it: {with_columns: {NAME: SQL}}"
            )


def _may_be_absent(column: Column) -> bool:
    """Return whether a reader sees that the field is absent, and takes that."""
    field = column.described
    return bool(field.is_repeated or (field.has_presence and not field.is_required))


def _check_type(column: Column, type: pa.DataType, path: str) -> None:
    if column.inside and pa.types.is_struct(type) and column.described.type != schemas.GROUP:
        return _check(column.inside, type, f"{path}.")
    if column.is_text or column.inside or not _is_written(column.described.type, type):
        kind = schemas.described(column.described)
        raise InvalidValue(
            f"{path} is of type {type}, which is not written as {kind}", "convert it with CAST in a select"
        )
    return None


def _is_written(field: int, type: pa.DataType) -> bool:
    if field in _SPANS:
        return type in _SPANS[field]
    if field in _RANGES:
        return bool(pa.types.is_integer(type))
    if field in _FLOATS:
        return bool(pa.types.is_integer(type) or pa.types.is_floating(type))
    return bool(type == (pa.bool_() if field == schemas.BOOL else pa.string()))


def _path(message: Descriptor) -> list[int]:
    """Return the indexes that lead to the message type in its file, behind their number; 0 stands for the first type.

    It is what `message_at` reads.
    """
    found, each = list[int](), message
    while each.containing_type is not None:
        found.insert(0, list(each.containing_type.nested_types).index(each))
        each = each.containing_type
    found.insert(0, list(each.file.message_types_by_name.values()).index(each))
    return [0] if found == [0] else [len(found), *found]


def _zigzag(number: int) -> bytes:
    rest, found = number << 1, bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def _compiled(layout: Sequence[Column]) -> writing.Program:
    lines = list(_instructions(layout, 0))
    return writing.Program(*np.array(lines, np.int64).reshape(-1, len(writing.Program._fields)).T.copy())


def _instructions(layout: Sequence[Column], place: int) -> Iterator[tuple[int, int, int, bool, int]]:
    """Yield the instructions that write these columns, the largest number first; the first has that place."""
    for column in sorted(layout, key=lambda column: -column.described.number):
        field = column.described
        if column.is_text or field.type == schemas.GROUP:
            continue
        wire = _WIRE[field.type]
        tag, is_implied = field.number << 3 | wire, not field.has_presence
        if column.inside:
            inside = list(_instructions(column.inside, place + 1))
            after = place + len(inside) + 2
            yield writing.END, column.slot, 0, False, after
            yield from inside
            yield writing.BEGIN, column.slot, tag, False, 0
            place = after
        else:
            yield _WRITTEN.get(wire, writing.SPAN), column.slot, tag, is_implied, 0
            place += 1


class _Filled:
    """Fills the slots of columns, collects the bytes of those that have some, and notes which rows do not fit."""

    def __init__(self, given: Slots, code: Array) -> None:
        self.given, self.code = given, code
        self._parts: list[Array] = [np.zeros(1, np.uint8)]
        self._size = 1

    def data(self) -> Array:
        """Return the bytes to which spans refer."""
        return np.concatenate(self._parts)

    def fill(self, layout: Sequence[Column], values: dict[str, pa.Array], around: Array) -> None:
        """Fill the slots of these columns, and of those inside. `around`: rows whose message is there."""
        taken: dict[str, Array] = {}
        for column in layout:
            if column.field.name not in values:
                continue
            valid = values[column.field.name].is_valid().to_numpy(zero_copy_only=False) & around
            if (choice := column.described.containing_oneof) is not None:
                self._refuse(column, valid & taken.get(choice.name, False))
                taken[choice.name] = valid | taken.get(choice.name, False)
            if not _may_be_absent(column):
                self._refuse(column, around & ~valid)
            self._fill(column, values[column.field.name], valid)

    def _refuse(self, column: Column, rows: Array) -> None:
        self.code[rows & (self.code == 0)] = 1 + column.slot

    def _fill(self, column: Column, values: pa.Array, valid: Array) -> None:
        field, slot = column.described.type, column.slot
        self.given.length[slot] = np.where(valid, 0, -1)
        if column.inside:
            self.fill(column.inside, dict(zip(values.type.names, values.flatten(), strict=True)), valid)
        elif field in _SPANS:
            data, start, length = binary_parts(values)
            self.given.number[slot], self.given.length[slot] = start + self._size, np.where(valid, length, -1)
            self._parts.append(data)
            self._size += len(data)
        elif field in _FLOATS:
            self._fill_floats(column, _without_nulls(values), valid)
        else:
            self._fill_integers(column, values, valid)

    def _fill_floats(self, column: Column, numbers: Array, valid: Array) -> None:
        is_double = column.described.type == schemas.DOUBLE
        with np.errstate(over="ignore"):
            floats = numbers.astype(np.float64 if is_double else np.float32)
        self._refuse(column, valid & np.isinf(floats) & np.isfinite(numbers))
        self.given.number[column.slot] = floats.view(np.int64 if is_double else np.int32)

    def _fill_integers(self, column: Column, values: pa.Array, valid: Array) -> None:
        field = column.described
        if field.type == schemas.ENUM:
            named = pa.array([each.name for each in field.enum_type.values], pa.string())
            places = pc.index_in(values, named).fill_null(-1).to_numpy(zero_copy_only=False)
            self._refuse(column, valid & (places < 0))
            numbers = np.array([each.number for each in field.enum_type.values], np.int64)[places]
        else:
            numbers = _without_nulls(values)
        if field.type in _RANGES:
            least, most = _RANGES[field.type]
            self._refuse(column, valid & ((numbers < least) | (numbers > most)))
        found = numbers.astype(np.int64)
        if field.type in (schemas.SINT32, schemas.SINT64):
            found = (found << 1) ^ (found >> 63)
        self.given.number[column.slot] = found


def _without_nulls(values: pa.Array) -> Array:
    numbers: Array = values.fill_null(False if pa.types.is_boolean(values.type) else 0).to_numpy(zero_copy_only=False)
    return numbers
