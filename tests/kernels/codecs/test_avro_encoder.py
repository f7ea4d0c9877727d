"""Typed columns as Avro values, read back by fastavro."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs.avro_strategies import in_columns, read_by_oracle
from tests.kernels.codecs.test_avro import record
from tidegate.contracts.errors import InvalidValue
from tidegate.kernels.codecs.avro.encoder import AvroEncoder
from tidegate.kernels.codecs.avro.schemas import columns_of, read_schema

pytestmark = pytest.mark.fast

INSIDE = {
    "type": "record",
    "name": "I",
    "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": ["null", "string"]}],
}
SCHEMA = record(
    flag="boolean",
    small="int",
    big=["long", "null"],
    half="float",
    real=["null", "double"],
    text="string",
    raw=["null", "bytes"],
    suit={"type": "enum", "name": "S", "symbols": ["A", "B"]},
    at={"type": "long", "logicalType": "timestamp-micros"},
    day=["null", {"type": "int", "logicalType": "date"}],
    inside=["null", INSIDE],
    within={**INSIDE, "name": "W"},
)
TEXT = orjson.dumps(SCHEMA).decode()
COLUMNS = columns_of(read_schema(TEXT))
OPTIONAL = {"big", "real", "raw", "day", "inside"}

_STRUCTS = st.fixed_dictionaries({"x": st.integers(-(2**63), 2**63 - 1), "y": st.none() | st.text(max_size=3)})
_FLOATS: Any = {"allow_nan": False, "allow_infinity": False}
ROWS = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**63), 2**63 - 1),
        "half": st.floats(width=32, **_FLOATS),
        "real": st.floats(**_FLOATS),
        "text": st.text(max_size=4),
        "raw": st.binary(max_size=4),
        "suit": st.sampled_from(["A", "B"]),
        "at": st.datetimes(),
        "day": st.dates(),
        "inside": _STRUCTS,
        "within": _STRUCTS,
    }
)


def encoded(rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS, schema: str = TEXT) -> list[Any]:
    """The bytes of the rows; the reason where one is not written."""
    found = AvroEncoder(columns, schema, 17).encode(pa.RecordBatch.from_pylist(rows, columns))
    found.values.validate(full=True)
    codes = zip(found.values.to_pylist(), found.code.tolist(), strict=True)
    return [found.reasons[code - 1] if code else each for each, code in codes]


@given(st.lists(st.tuples(ROWS, st.sets(st.sampled_from(COLUMNS.names))), max_size=4))
def test_what_is_written_is_read_by_fastavro_and_a_null_needs_a_union(
    drawn: list[tuple[dict[str, Any], set[str]]],
) -> None:
    rows = [{name: None if name in nulls else value for name, value in row.items()} for row, nulls in drawn]
    for found, row in zip(encoded(rows), rows, strict=True):
        missing = [name for name in COLUMNS.names if row[name] is None and name not in OPTIONAL]
        if missing:
            assert found == f"its {missing[0]} does not fit the schema"
        else:
            assert found[:5] == b"\0\0\0\0\x11"
            assert in_columns(SCHEMA, read_by_oracle(found, SCHEMA)) == row


def test_a_value_that_does_not_fit_is_refused_and_the_others_are_written() -> None:
    schema = orjson.dumps(record(n="int", f="float", s={"type": "enum", "name": "S", "symbols": ["A"]})).decode()
    columns = pa.schema({"n": pa.int64(), "f": pa.float64(), "s": pa.string()})
    rows = [
        {"n": 1, "f": 0.5, "s": "A"},
        {"n": 2**31, "f": 0.5, "s": "A"},
        {"n": 1, "f": 1e300, "s": "A"},
        {"n": 1, "f": 0.5, "s": "B"},
    ]
    good, *others = encoded(rows, columns, schema)
    assert read_by_oracle(good, orjson.loads(schema)) == {"n": 1, "f": 0.5, "s": "A"}
    assert others == [f"its {name} does not fit the schema" for name in "nfs"]


WHOLE = [pa.int8(), pa.int64()]
NUMBERS = [*WHOLE, pa.uint8(), pa.uint64(), pa.float16(), pa.float64()]
WRITTEN: list[tuple[Any, list[pa.DataType]]] = [
    *(("int", WHOLE), ("long", WHOLE), ("float", NUMBERS), ("double", NUMBERS)),
    ({"type": "int", "logicalType": "date"}, [pa.date32()]),
    ({"type": "int", "logicalType": "time-millis"}, [pa.time32("ms")]),
    ({"type": "long", "logicalType": "timestamp-nanos"}, [pa.timestamp("ns")]),
]
"""Types of fields, and those of the columns that they are written from."""


@pytest.mark.parametrize(("field", "type"), [(field, type) for field, types in WRITTEN for type in types])
@given(given_values=st.lists(st.none() | st.integers(-(2**64), 2**64), max_size=3))
def test_nothing_in_a_column_of_a_type_that_is_written_makes_the_encoder_fail(
    field: Any, type: pa.DataType, given_values: list[int | None]
) -> None:
    width = type.bit_width // 8
    bits = [None if each is None else each % 2 ** (8 * width) for each in given_values]
    raw = pa.array([None if each is None else each.to_bytes(width, "little") for each in bits], pa.binary(width))
    encoder = AvroEncoder(pa.schema({"n": type}), orjson.dumps(record(n=["null", field])).decode(), 17)
    found = encoder.encode(pa.record_batch({"n": raw.view(type)}))
    found.values.validate(full=True)
    assert all(each is None or each[:5] == b"\0\0\0\0\x11" for each in found.values.to_pylist())


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_a_whole_number_is_written_as_the_nearest_float(numbers: list[int]) -> None:
    schema = record(f="float", d="double")
    columns = pa.schema({"f": pa.int64(), "d": pa.int64()})
    found = encoded([{"f": each, "d": each} for each in numbers], columns, orjson.dumps(schema).decode())
    expected = [{"f": float(np.float32(float(each))), "d": float(each)} for each in numbers]
    assert [read_by_oracle(each, schema) for each in found] == expected


@pytest.mark.parametrize("type", [pa.string(), pa.large_string()])
def test_a_uuid_is_written_in_lower_case_and_other_text_is_refused(type: pa.DataType) -> None:
    uuid = {"type": "string", "logicalType": "uuid"}
    inside = {"type": "record", "name": "I", "fields": [{"name": "u", "type": uuid}]}
    schema, columns = record(u=["null", uuid], i=["null", inside]), pa.schema({"u": type, "i": pa.struct({"u": type})})
    good = "00112233-4455-6677-8899-AABBCCDDEEFF"
    rows: list[dict[str, Any]] = [
        {"u": good, "i": {"u": good}},
        {"u": None, "i": None},
        {"u": good[:-1], "i": None},
        {"u": "", "i": {"u": ""}},
        {"u": None, "i": {"u": f"{{{good}}}"}},
    ]
    first, second, *others = encoded(rows, columns, orjson.dumps(schema).decode())
    found = [in_columns(schema, read_by_oracle(each, schema)) for each in (first, second)]
    assert found == [{"u": good.lower(), "i": {"u": good.lower()}}, {"u": None, "i": None}]
    assert others == [f"its {name} does not fit the schema" for name in "uuu"]


def test_a_field_without_a_column_is_null_if_it_may_be() -> None:
    schema = record(n=["null", "long"], m="long")
    [found] = encoded([{"m": 5}], pa.schema({"m": pa.int32()}), orjson.dumps(schema).decode())
    assert read_by_oracle(found, schema) == {"n": None, "m": 5}


@pytest.mark.parametrize(
    ("columns", "cause"),
    [
        ({"m": pa.int64()}, "n, a field of the schema, is missing"),
        ({"n": pa.int64(), "x": pa.int64()}, "x is no field of the schema"),
        ({"n": pa.string()}, "n is of type string, which is not written as long"),
        ({"n": pa.int64(), "m": pa.struct({"z": pa.int64()})}, "m.z is no field of the schema"),
        ({"n": pa.int64(), "tags": pa.large_string()}, "tags is of type large_string, which is not written as array"),
    ],
)
def test_columns_that_do_not_fit_are_a_problem_before_any_row_comes(columns: dict[str, Any], cause: str) -> None:
    inside = {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "long"]}]}
    tags = ["null", {"type": "array", "items": "string"}]
    with pytest.raises(InvalidValue) as refused:
        AvroEncoder(pa.schema(columns), orjson.dumps(record(n="long", m=["null", inside], tags=tags)).decode(), 17)
    assert refused.value.cause == cause
