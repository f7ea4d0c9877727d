"""Makes Arrow columns of what the kernel has read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.primitives import text_of
from tidegate.kernels.codecs.protobuf import schemas
from tidegate.kernels.codecs.protobuf.layout import Column
from tidegate.kernels.codecs.slots import Slots
from tidegate.kernels.columns import as_text, binary_column, in_one

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a field."""
_NO_BYTES = np.zeros(0, np.uint8)


class Reading:
    """One pass over the columns. `code` gets a reason for rows whose bytes are no text where a column is."""

    def __init__(
        self, data: Array, found: Slots, texts: Mapping[int, Array], code: Array, reasons: MutableSequence[str]
    ) -> None:
        self._data, self._found, self._texts = data, found, texts
        self._code, self._reasons = code, reasons

    def column(self, column: Column) -> pa.Array:
        """Return the column. A field without presence has its default where it is absent."""
        length = self._found.length[column.slot]
        if column.is_text:
            return pa.array(self._texts[column.slot], pa.large_string())
        if column.inside:
            arrays = {each.field.name: self.column(each) for each in column.inside}
            fields = list(column.field.type)
            mask = pa.array(length < 0)
            return pa.StructArray.from_arrays([arrays[f.name] for f in fields], fields=fields, mask=mask)
        if column.described.type in (schemas.STRING, schemas.BYTES):
            return self._spans(column)
        null = length < 0
        return _READERS.get(column.described.type, _integers)(
            self._found.number[column.slot], column, null if column.may_be_null and null.any() else None
        )

    def _spans(self, column: Column) -> pa.Array:
        start, length = self._found.number[column.slot], self._found.length[column.slot]
        spans = in_one(binary_column(self._data, _NO_BYTES, start, length))
        if column.described.type == schemas.BYTES:
            return spans
        if schemas.is_checked_text(column.described):
            return as_text(spans)
        values, wrong = text_of(spans)
        if wrong.any():
            self._reasons.append(f"value: {column.field.name} is no string")
            self._code[wrong & (self._code == 0)] = len(self._reasons)
        return values


def _integers(numbers: Array, column: Column, null: Array | None) -> pa.Array:
    return pa.array(numbers.astype(column.field.type.to_pandas_dtype(), copy=False), mask=null)


def _bools(numbers: Array, column: Column, null: Array | None) -> pa.Array:
    return pa.array(numbers != 0, mask=null)


def _floats(numbers: Array, column: Column, null: Array | None) -> pa.Array:
    return pa.array(numbers.astype(np.int32).view(np.float32), mask=null)


def _doubles(numbers: Array, column: Column, null: Array | None) -> pa.Array:
    return pa.array(numbers.view(np.float64), mask=null)


def _enums(numbers: Array, column: Column, null: Array | None) -> pa.Array:
    """Return the names of the numbers; one without a name is the text of the number."""
    names = {value.number: value.name for value in reversed(column.described.enum_type.values)}
    known, places = np.unique(numbers, return_inverse=True)
    texts = pa.array([names.get(number, str(number)) for number in known.tolist()], pa.string())
    return texts.take(pa.array(places.reshape(-1), mask=null))


_READERS: dict[int, Callable[[Array, Column, Array | None], pa.Array]] = {
    schemas.BOOL: _bools,
    schemas.FLOAT: _floats,
    schemas.DOUBLE: _doubles,
    schemas.ENUM: _enums,
}


class NoJson(ValueError):
    """A field whose value JSON cannot have. `place`: that of its path among those that were asked for."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def json_texts(message: Message, paths: Sequence[Path]) -> list[str | None]:
    """Return the JSON text of each field, which is Protobuf's own JSON; None where it or a message around it is absent.

    Raise NoJson if JSON cannot have one of them. Other fields do not matter: the message loses them.
    """
    _keep(message, paths)
    try:
        return _texts_of(message, paths)
    except Exception as error:  # whatever a library raises for it, these fields alone cannot be read
        raise NoJson(_first_without_json(message, paths)) from error


def _keep(message: Message, paths: Sequence[Path]) -> None:
    """Clear all fields but those to which the paths lead."""
    wanted: dict[str, list[Path]] = {}
    for name, *inside in paths:
        wanted.setdefault(name, []).append(tuple(inside))
    for field, value in message.ListFields():
        if field.is_extension:
            message.ClearExtension(field)
        elif field.name not in wanted:
            message.ClearField(field.name)
        elif all(wanted[field.name]):
            _keep(value, wanted[field.name])


def _texts_of(message: Message, paths: Sequence[Path]) -> list[str | None]:
    from google.protobuf.json_format import MessageToDict

    found = MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        descriptor_pool=message.DESCRIPTOR.file.pool,  # the types that `Any` may have
    )
    texts = [_text_at(found, path) for path in paths]
    if any(text is not None and _BYTE in text for text in texts):
        _check_text(message)
    return texts


_BYTE = "\\\\x"
"""What the library's JSON contains where text, which proto2 does not check, is no UTF-8: it writes `b'\\xff'`."""


def _check_text(message: Message) -> None:
    """Raise UnicodeDecodeError if text is no UTF-8: the library has it as bytes."""
    for field, value in message.ListFields():
        if isinstance(value, Mapping):
            _check_values(field.message_type.fields_by_name["key"], value)
            _check_values(field.message_type.fields_by_name["value"], value.values())
        else:
            _check_values(field, value if field.is_repeated else [value])


def _check_values(field: FieldDescriptor, values: Iterable[Any]) -> None:
    for each in values:
        if field.message_type is not None:
            _check_text(each)
        elif field.type == schemas.STRING and isinstance(each, bytes):
            each.decode()


def _first_without_json(message: Message, paths: Sequence[Path]) -> int:
    return next((place for place, path in enumerate(paths[:-1]) if not _has_json(message, path)), len(paths) - 1)


def _has_json(message: Message, path: Path) -> bool:
    alone = type(message)()
    alone.CopyFrom(message)
    _keep(alone, [path])
    try:
        return bool(_texts_of(alone, [path]))
    except Exception:
        return False


def _text_at(found: Any, path: Path) -> str | None:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return None if found is None else orjson.dumps(found).decode()
