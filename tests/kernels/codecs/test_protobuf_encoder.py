"""Typed columns as Protobuf values, read back by Google's library and by the decoder."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs.protobuf_strategies import decoded, message_class, reading
from tidegate.contracts.errors import InvalidValue
from tidegate.kernels.codecs.protobuf.encoder import ProtobufEncoder
from tidegate.kernels.codecs.protobuf.schemas import columns_of, message_of, read_schema

pytestmark = pytest.mark.fast

SCHEMA = """
syntax = "proto3";
enum Color { RED = 0; GREEN = 1; DEEP = -5; }
message Other { int32 x = 1; }
message R {
  message In { optional string y = 3; sint64 x = 2047; In2 deep = 1; }
  message In2 { bool flag = 1; }
  double real = 5; float half = 4; int64 big = 1; uint64 huge = 2; int32 small = 3; fixed64 f64 = 6; fixed32 f32 = 7;
  bool flag = 8; string text = 9; bytes raw = 10; uint32 few = 11; sfixed32 s32 = 12; sfixed64 s64 = 13;
  sint32 z32 = 14; sint64 z64 = 15; Color color = 16; optional int32 some = 17; In inside = 536870911;
  oneof choice { string left = 20; Other right = 18; }
  repeated int32 list = 30;
}
"""
COLUMNS = columns_of(message_of(read_schema(SCHEMA), "R")).remove(20)
assert "list" not in COLUMNS.names
INTEGERS = {
    **dict.fromkeys(("big", "s64", "z64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("small", "s32", "z32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("huge", "f64"), (0, 2**64 - 1)),
    **dict.fromkeys(("few", "f32"), (0, 2**32 - 1)),
}
_NO_NAN: Any = {"allow_nan": False}
_IN = st.fixed_dictionaries(
    {
        "y": st.none() | st.text(max_size=3),
        "x": st.integers(-(2**63), 2**63 - 1),
        "deep": st.none() | st.fixed_dictionaries({"flag": st.booleans()}),
    }
)
_CHOICES = st.sampled_from([(None, None), ("a", None), ("", None), (None, {"x": 0}), (None, {"x": 7})])
_PLAIN = st.fixed_dictionaries(
    {
        "real": st.floats(**_NO_NAN),
        "half": st.floats(width=32, **_NO_NAN),
        **{name: st.just(0) | st.integers(*bounds) for name, bounds in INTEGERS.items()},
        "flag": st.booleans(),
        "text": st.text(max_size=4),
        "raw": st.binary(max_size=4),
        "color": st.sampled_from(["RED", "GREEN", "DEEP"]),
        "some": st.none() | st.integers(-(2**31), 2**31 - 1),
        "inside": st.none() | _IN,
    }
)
ROWS = st.tuples(_PLAIN, _CHOICES).map(lambda drawn: {**drawn[0], "left": drawn[1][0], "right": drawn[1][1]})
FULL: dict[str, Any] = {
    **dict.fromkeys(INTEGERS, 0),
    "real": 0.0,
    "half": 0.0,
    "flag": False,
    "text": "",
    "raw": b"",
    "color": "RED",
    "some": None,
    "inside": None,
    "left": None,
    "right": None,
}


def encode(rows: list[dict[str, Any]], columns: pa.Schema = COLUMNS, name: str = "R") -> Any:
    return ProtobufEncoder(columns, SCHEMA, name, 17).encode(pa.RecordBatch.from_pylist(rows, columns))


def message(row: dict[str, Any], name: str = "R") -> Any:
    """The row as a message of Google's library."""
    return message_class(SCHEMA, name)(**{field: value for field, value in row.items() if value is not None})


@given(st.lists(ROWS, max_size=4))
def test_values_are_those_that_google_s_library_writes(rows: list[dict[str, Any]]) -> None:
    found = encode(rows)
    found.values.validate(full=True)
    expected = [b"\0\0\0\0\x11\2\2" + message(row).SerializeToString(deterministic=True) for row in rows]
    assert found.values.to_pylist() == expected and not found.code.any()


@given(st.lists(ROWS, max_size=4))
def test_what_is_written_is_read_as_it_was(rows: list[dict[str, Any]]) -> None:
    read = decoded(reading(SCHEMA), encode(rows).values.to_pylist())
    assert read == [{**row, "list": "[]"} for row in rows]


@pytest.mark.parametrize(
    ("name", "type", "wrong"),
    [
        ("small", pa.int64(), 2**31),
        ("few", pa.int64(), -1),
        ("huge", pa.int64(), -1),
        ("big", pa.uint64(), 2**63),
        ("z32", pa.int64(), -(2**31) - 1),
        ("half", pa.float64(), 1e39),
        ("color", pa.string(), "BLUE"),
        ("text", pa.string(), None),
        ("flag", pa.bool_(), None),
    ],
)
def test_a_row_that_does_not_fit_has_no_value_and_the_others_have_theirs(
    name: str, type: pa.DataType, wrong: Any
) -> None:
    columns = pa.schema([pa.field(each.name, type) if each.name == name else each for each in COLUMNS])
    found = encode([FULL, {**FULL, name: wrong}, FULL], columns)
    good = encode([FULL]).values[0].as_py()
    assert found.values.to_pylist() == [good, None, good]
    assert found.causes([1]) == [f"its {name} does not fit the schema"]


@pytest.mark.parametrize("type", [pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float64()])
@given(bits=st.lists(st.none() | st.integers(0, 2**64 - 1), max_size=3))
def test_nothing_in_a_column_of_a_type_that_is_written_makes_the_encoder_fail(
    type: pa.DataType, bits: list[int | None]
) -> None:
    width = type.bit_width // 8
    raw = [None if each is None else (each % 2 ** (8 * width)).to_bytes(width, "little") for each in bits]
    fields = ["real", "half"] if pa.types.is_floating(type) else ["real", "half", *INTEGERS]
    for field in fields:
        rows = [{**FULL, field: None} for _ in raw]
        columns = pa.RecordBatch.from_pylist(rows, COLUMNS)
        columns = columns.set_column(COLUMNS.names.index(field), field, pa.array(raw, pa.binary(width)).view(type))
        ProtobufEncoder(columns.schema, SCHEMA, "R", 17).encode(columns).values.validate(full=True)


def test_two_members_of_a_oneof_do_not_fit() -> None:
    found = encode([{**FULL, "left": "a", "right": {"x": 1}}])
    assert found.values.to_pylist() == [None] and "does not fit" in found.causes([0])[0]


def test_fields_that_may_be_absent_need_no_column_and_others_do() -> None:
    absent = {"some", "inside", "left", "right"}
    present = pa.schema([field for field in COLUMNS if field.name not in absent])
    row = {name: value for name, value in FULL.items() if name not in absent}
    assert encode([row], present).values.to_pylist() == encode([FULL]).values.to_pylist()
    with pytest.raises(InvalidValue, match="flag, a field of the message, is missing"):
        ProtobufEncoder(COLUMNS.remove(COLUMNS.names.index("flag")), SCHEMA, "R", 17)


@pytest.mark.parametrize(
    ("field", "cause"),
    [
        (pa.field("more", pa.int64()), "more is no field of the message"),
        (pa.field("list", pa.large_string()), "list is of type large_string, which is not written as repeated int32"),
        (pa.field("some", pa.float64()), "some is of type double, which is not written as int32"),
        (
            pa.field("inside", pa.struct({"x": pa.string()})),
            "x is of type string, which is not written as sint64",
        ),
    ],
)
def test_columns_that_a_message_cannot_have_are_refused(field: pa.Field, cause: str) -> None:
    columns = pa.schema([*(each for each in COLUMNS if each.name != field.name), field])
    with pytest.raises(InvalidValue, match=cause):
        ProtobufEncoder(columns, SCHEMA, "R", 17)


def test_a_value_names_its_message_type_by_its_place_in_the_file() -> None:
    flag = pa.schema({"flag": pa.bool_()})
    assert encode([{"flag": True}], flag, "R.In2").values.to_pylist() == [b"\0\0\0\0\x11\4\2\2\x08\x01"]
    first = pa.schema({"x": pa.int64()})
    assert encode([{"x": 1}], first, "Other").values.to_pylist() == [b"\0\0\0\0\x11\0\x08\x01"]


def test_a_required_field_of_proto2_must_be_there_and_zero_is_written() -> None:
    schema = 'syntax = "proto2"; message P { required int32 n = 1; optional int32 m = 2 [default = 5]; }'
    encoder = ProtobufEncoder(pa.schema({"n": pa.int32(), "m": pa.int32()}), schema, "P", 17)
    rows = pa.record_batch({"n": pa.array([0, None], pa.int32()), "m": pa.array([0, 1], pa.int32())})
    assert encoder.encode(rows).values.to_pylist() == [b"\0\0\0\0\x11\0\x08\0\x10\0", None]
