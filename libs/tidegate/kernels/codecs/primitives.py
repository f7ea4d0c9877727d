"""Kafka's own serializers: numbers with their highest byte first, UTF-8 text, and UUIDs as text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.values import PRIMITIVES, Primitive
from tidegate.kernels.codecs.port import CODE, Decoded, Encoded
from tidegate.kernels.columns import as_text, binary_column, in_one, is_ascii

_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_NO_BYTES = np.zeros(0, np.uint8)
_REASONS = {"string": "not UTF-8", "uuid": "no UUID"}


class PrimitiveDecoder:
    """Reads one column, named `part` (`key` or `value`). A null is a null."""

    def __init__(self, form: Primitive, part: str) -> None:
        self.schema = pa.schema([pa.field(part, PRIMITIVES[form])])
        self._form, self._reasons = form, (f"{part}: {_REASONS.get(form, f'not {form}')}",)

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        [type] = self.schema.types
        if self._form not in ("bytes", "string", "uuid"):
            column, wrong = _numbers(data, start, length, np.dtype(type.to_pandas_dtype()))
        else:
            bytes_ = in_one(binary_column(data, _NO_BYTES, start, length))
            column, wrong = _READERS[self._form](bytes_)
        return Decoded([column], wrong.astype(CODE), self._reasons)


def _numbers(data: Array, start: Array, length: Array, type: np.dtype) -> tuple[pa.Array, Array]:
    fits = length == type.itemsize
    data = data if len(data) >= type.itemsize else np.zeros(type.itemsize, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(data, type.itemsize)
    numbers = windows[np.where(fits, start, 0)].view(type.newbyteorder(">"))[:, 0].astype(type)
    return pa.array(numbers, mask=~fits), ~fits & (length >= 0)


def _bytes(values: pa.Array) -> tuple[pa.Array, Array]:
    return values, np.zeros(len(values), np.bool_)


def text_of(values: pa.Array) -> tuple[pa.Array, Array]:
    """Return byte strings as text, and which of them are not UTF-8."""
    if is_ascii(values):
        return as_text(values), np.zeros(len(values), np.bool_)
    try:
        return values.cast(pa.string()), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        texts = [_decoded(each) for each in values.to_pylist()]
        wrong = [text is None and values[at].is_valid for at, text in enumerate(texts)]
        return pa.array(texts, pa.string()), np.array(wrong, np.bool_)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def uuids_of(values: pa.Array) -> tuple[pa.Array, Array]:
    """Return byte strings as UUIDs in lower case, and which of them are none."""
    wrong = pc.invert(pc.match_substring_regex(values, _UUID)).fill_null(False)
    texts = pc.if_else(wrong, None, values).cast(pa.string())
    return pc.ascii_lower(texts), wrong.to_numpy(zero_copy_only=False)


_READERS = {"bytes": _bytes, "string": text_of, "uuid": uuids_of}


def writable(form: Primitive, type: pa.DataType) -> bool:
    """Return whether a column of that type can be written in that form; single rows may still not fit."""
    if form in ("bytes", "string", "uuid"):
        return bool(type == pa.string() or (form == "bytes" and type == pa.binary()))
    if pa.types.is_floating(PRIMITIVES[form]):
        return bool(pa.types.is_integer(type) or pa.types.is_floating(type))
    return bool(pa.types.is_signed_integer(type))


class PrimitiveEncoder:
    """Writes the only column of rows; `writable` says which types it may have. A null is a null."""

    def __init__(self, form: Primitive) -> None:
        self._form, self._reasons = form, (f"its value is {_REASONS.get(form, f'no {form}')}",)

    def encode(self, columns: pa.RecordBatch) -> Encoded:
        """Write each row. A number that is out of range has no bytes; a float becomes the nearest one."""
        [column] = columns.columns
        if self._form in ("bytes", "string", "uuid"):
            values, wrong = _READERS[self._form](column.cast(pa.binary()))
            return Encoded(values.cast(pa.binary()), wrong.astype(CODE), self._reasons)
        type = np.dtype(PRIMITIVES[self._form].to_pandas_dtype())
        null = column.is_null().to_numpy(zero_copy_only=False)
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = _out_of_range(numbers, type) & ~null
        with np.errstate(over="ignore", invalid="ignore"):
            data = np.where(wrong, 0, numbers).astype(type.newbyteorder(">")).view(np.uint8)
        start = np.arange(len(numbers), dtype=np.int64) * type.itemsize
        length = np.where(null | wrong, -1, type.itemsize)
        values = in_one(binary_column(data, _NO_BYTES, start, length))
        return Encoded(values, wrong.astype(CODE), self._reasons)


def _out_of_range(numbers: Array, type: np.dtype) -> Array:
    if type.kind == "i":
        limits = np.iinfo(type)
        return (numbers < limits.min) | (numbers > limits.max)
    with np.errstate(over="ignore"):
        wrong: Array = np.isinf(numbers.astype(type)) & np.isfinite(numbers)
    return wrong
