"""Makes Arrow columns of what the kernel has read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.avro.layout import Column
from tidegate.kernels.codecs.avro.schemas import DAYS, name_of
from tidegate.kernels.codecs.primitives import text_of, uuids_of
from tidegate.kernels.codecs.slots import Slots
from tidegate.kernels.columns import binary_column, in_one
from tidegate.kernels.compiled import compiled_in_place, wide


class Reading:
    """One pass over the columns. `code` gets a reason for rows whose bytes are no value of the column's type."""

    def __init__(
        self,
        data: Array,
        constants: Array,
        found: Slots,
        texts: Mapping[int, Array],
        code: Array,
        reasons: MutableSequence[str],
    ) -> None:
        self._data, self._constants, self._found, self._texts = data, constants, found, texts
        self._code, self._reasons = code, reasons

    def column(self, column: Column) -> pa.Array:
        """Return the column."""
        null = self._found.length[column.slot] < 0
        if column.is_text:
            return self._json(column)
        if column.inside:
            arrays = [self.column(each) for each in column.inside]
            return pa.StructArray.from_arrays(arrays, fields=list(column.field.type), mask=pa.array(null))
        kind = "decimal" if column.meaning == "decimal" else name_of(column.type)
        if kind in ("string", "bytes", "fixed", "decimal"):
            return self._spans(column, kind)
        if column.meaning in DAYS:
            number = self._found.number[column.slot]
            self._refuse(column, ~null & ((number < 0) | (number >= DAYS[column.meaning])))
        return _READERS[kind](self._found, column, null if null.any() else None)

    def _json(self, column: Column) -> pa.Array:
        texts = self._texts[column.slot]
        for row in np.flatnonzero(self._found.number[column.slot] < 0).tolist():
            texts[row] = self._constant(column.slot, row)
        return pa.array(texts, pa.large_string())

    def _constant(self, slot: int, row: int) -> str | None:
        start, length = ~self._found.number[slot, row], self._found.length[slot, row]
        return None if length < 0 else self._constants[start : start + length].tobytes().decode()

    def _spans(self, column: Column, kind: str) -> pa.Array:
        start, length = self._found.number[column.slot], self._found.length[column.slot]
        if kind == "decimal":
            values, wrong = _decimals(self._data, self._constants, start, length, column.field.type)
        else:
            spans = in_one(binary_column(self._data, self._constants, start, length))
            if kind != "string":
                return spans
            values, wrong = (uuids_of if column.meaning == "uuid" else text_of)(spans)
        self._refuse(column, wrong)
        return values

    def _refuse(self, column: Column, wrong: Array) -> None:
        if wrong.any():
            self._reasons.append(f"value: {column.field.name} is no {column.meaning or column.field.type}")
            self._code[wrong & (self._code == 0)] = len(self._reasons)


def _bools(found: Slots, column: Column, null: Array | None) -> pa.Array:
    return pa.array(found.number[column.slot] != 0, mask=null)


def _numbers(found: Slots, column: Column, null: Array | None) -> pa.Array:
    width = np.int32 if name_of(column.type) == "int" else np.int64
    return pa.array(found.number[column.slot].astype(width, copy=False), mask=null).cast(column.field.type)


def _floats(found: Slots, column: Column, null: Array | None) -> pa.Array:
    with np.errstate(over="ignore"):  # a number that is promoted may be too large for a float: it becomes infinite
        return pa.array(found.floats[column.slot].astype(column.field.type.to_pandas_dtype(), copy=False), mask=null)


def _enums(found: Slots, column: Column, null: Array | None) -> pa.Array:
    assert not isinstance(column.type, str | list)
    symbols = pa.array(column.type["symbols"], pa.string())
    return symbols.take(pa.array(np.where(found.length[column.slot] < 0, 0, found.number[column.slot]), mask=null))


_READERS: dict[str, Callable[[Slots, Column, Array | None], pa.Array]] = {
    "boolean": _bools,
    "int": _numbers,
    "long": _numbers,
    "float": _floats,
    "double": _floats,
    "enum": _enums,
}


def _decimals(data: Array, constants: Array, start: Array, length: Array, type: pa.Decimal128Type) -> tuple[Any, Array]:
    """Return the unscaled numbers as decimals, and which rows have too many digits."""
    words, wrong = np.zeros((len(start), 2), np.int64), np.zeros(len(start), np.bool_)
    _read_decimals(data, constants, start, length, words, wrong)
    words[wrong] = 0
    values = _decimal_array(words, wrong | (length < 0), type)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        wrong |= _too_long(words, type.precision)
        values = _decimal_array(words, wrong | (length < 0), type)
    return values, wrong


def _decimal_array(words: Array, null: Array, type: pa.Decimal128Type) -> pa.Array:
    validity = np.packbits(~null, bitorder="little")
    return pa.Array.from_buffers(type, len(words), [pa.py_buffer(validity), pa.py_buffer(words)])


def _too_long(words: Array, precision: int) -> Array:
    numbers = ((high << 64) | (low % 2**64) for low, high in words.tolist())
    return np.array([abs(number) >= 10**precision for number in numbers], np.bool_)


@compiled_in_place
def _read_decimals(data: Array, constants: Array, starts: Array, lengths: Array, words: Array, wrong: Array) -> None:
    for row in range(len(starts)):
        start, length = wide(starts[row]), wide(lengths[row])
        low, high = wide(0), wide(0)
        for at in range(length):
            byte = wide(data[start + at] if start >= 0 else constants[~start + at])
            if at == 0 and byte >= 128:
                low, high = wide(-1), wide(-1)
            lost = (high >> 55) & 0x1FF
            if lost != 0 and lost != 0x1FF:
                wrong[row] = True
            high = (high << 8) | ((low >> 56) & 0xFF)
            low = (low << 8) | byte
        words[row, 0], words[row, 1] = low, high
