"""Makes Arrow columns of what the kernel has read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from typing import TYPE_CHECKING, Any

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
    from google.protobuf.message import Message

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


def json_texts(message: Message, columns: list[Column]) -> list[str | None]:
    """Return the JSON text of each column, which is Protobuf's own JSON; None where a message around it is absent.

    Raise ValueError if JSON cannot have it.
    """
    from google.protobuf.json_format import MessageToDict, SerializeToJsonError

    try:
        found = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    except (SerializeToJsonError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return [_text_at(found, column.path) for column in columns]


def _text_at(found: Any, path: tuple[str, ...]) -> str | None:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return None if found is None else orjson.dumps(found).decode()
