"""The formats of Kafka's own serializers, compared with `struct` and `uuid`."""

from __future__ import annotations

import math
import struct
import uuid
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.values import PRIMITIVES, Primitive
from tidegate.kernels.codecs.primitives import PrimitiveDecoder, PrimitiveEncoder, writable

pytestmark = pytest.mark.fast

PACKED = {"int16": ">h", "int32": ">i", "int64": ">q", "float32": ">f", "float64": ">d"}
NAMES = {"string": "not UTF-8", "uuid": "no UUID"}
FORMS: tuple[Primitive, ...] = get_args(Primitive)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 2**15, -(2**15), 2**31, -(2**31) - 1, 2**63 - 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e300, -3.5e38, 0.1])


def decoded(form: Primitive, values: list[bytes | None]) -> list[Any]:
    """The column of the values; the reason where one cannot be read."""
    length = np.array([-1 if value is None else len(value) for value in values], np.int64)
    start = np.cumsum(np.maximum(length, 0)) - np.maximum(length, 0)
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    found = PrimitiveDecoder(form, "value").columns(data, start, length)
    [column] = found.columns
    assert column.type == PRIMITIVES[form]
    return [
        found.reasons[code - 1] if code else each for each, code in zip(column.to_pylist(), found.code, strict=True)
    ]


def encoded(form: Primitive, column: pa.Array) -> list[Any]:
    """The bytes of the column; the reason where a value cannot be written."""
    found = PrimitiveEncoder(form).encode(pa.record_batch([column], ["value"]))
    codes = zip(found.values.to_pylist(), found.code.tolist(), strict=True)
    return [found.reasons[code - 1] if code else each for each, code in codes]


def read_by_oracle(form: Primitive, value: bytes | None) -> Any:
    if value is None or form == "bytes":
        return value
    try:
        if form in PACKED:
            return struct.unpack(PACKED[form], value)[0]
        text = value.decode()
        return text if form == "string" else _uuid(text)
    except (struct.error, ValueError):
        return f"value: {NAMES.get(form, f'not {form}')}"


def _uuid(text: str) -> str:
    """The UUID of the text in its usual form; Python reads other forms, too."""
    found = str(uuid.UUID(text))
    if found != text.lower():
        raise ValueError(text)
    return found


VALUES = (
    st.none()
    | st.binary(max_size=9)
    | st.binary(min_size=2, max_size=2)
    | st.binary(min_size=4, max_size=4)
    | st.binary(min_size=8, max_size=8)
    | st.text(max_size=4).map(str.encode)
    | st.uuids().map(lambda each: str(each).encode())
    | st.uuids().map(lambda each: str(each).upper().encode())
    | st.uuids().map(lambda each: str(each).encode()[:-1] + b"\xff")
    | st.uuids().map(lambda each: str(each).encode()[:-1] + b"\n")
)


@given(st.sampled_from(FORMS), st.lists(VALUES, max_size=6))
def test_a_value_is_read_as_another_reader_does_or_refused(form: Primitive, values: list[bytes | None]) -> None:
    for found, expected in zip(decoded(form, values), [read_by_oracle(form, each) for each in values], strict=True):
        nan = isinstance(expected, float) and math.isnan(expected)
        assert math.isnan(found) if nan else found == expected


@given(st.sampled_from(["int16", "int32", "int64"]), st.lists(st.none() | NUMBERS, max_size=6))
def test_a_whole_number_is_written_if_it_is_in_range(form: Primitive, numbers: list[int | None]) -> None:
    for found, number in zip(encoded(form, pa.array(numbers, pa.int64())), numbers, strict=True):
        try:
            assert found == (None if number is None else struct.pack(PACKED[form], number))
        except struct.error:
            assert found == f"its value is no {form}"


@given(st.sampled_from(["float32", "float64"]), st.lists(st.none() | FLOATS, max_size=6))
def test_a_float_is_written_as_the_nearest_one_and_never_becomes_infinite(
    form: Primitive, numbers: list[float | None]
) -> None:
    for found, number in zip(encoded(form, pa.array(numbers, pa.float64())), numbers, strict=True):
        try:
            assert found == (None if number is None else struct.pack(PACKED[form], number))
        except OverflowError:
            assert found == "its value is no float32"


@given(st.sampled_from(["bytes", "string", "uuid"]), st.lists(st.none() | st.text(max_size=3) | st.uuids(), max_size=4))
def test_text_is_written_in_utf_8_and_a_uuid_must_be_one(form: Primitive, values: list[Any]) -> None:
    texts = [None if value is None else str(value) for value in values]
    for found, value in zip(encoded(form, pa.array(texts, pa.string())), values, strict=True):
        fits = value is None or form != "uuid" or isinstance(value, uuid.UUID)
        assert found == (("its value is no UUID") if not fits else None if value is None else str(value).encode())


@pytest.mark.parametrize("form", FORMS)
def test_a_format_can_write_what_it_reads(form: Primitive) -> None:
    assert writable(form, PRIMITIVES[form])
    assert not writable(form, pa.struct([("x", pa.int64())]))
