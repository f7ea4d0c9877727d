"""Protobuf values as typed columns, compared with Google's library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs import paths
from tests.kernels.codecs.damage import damaged
from tests.kernels.codecs.protobuf_strategies import (
    bodies,
    decoded,
    in_wire_format,
    message_class,
    occurrences,
    read_by_oracle,
    reading,
    schemas,
)

pytestmark = pytest.mark.fast


@given(st.data(), schemas())
def test_values_are_read_as_by_google_s_library_and_only_wanted_paths(data: st.DataObject, schema: str) -> None:
    decoder = reading(schema, *data.draw(paths.some(reading(schema).schema)))
    given_values = data.draw(st.lists(bodies(schema), min_size=1, max_size=5))
    found = decoded(decoder, [in_wire_format(value) for value in given_values])
    expected = [read_by_oracle(schema, value) for value in given_values]
    assert repr(found) == repr([paths.part(row, decoder.schema) for row in expected if row])


@given(st.data(), schemas())
def test_a_damaged_value_is_read_as_by_google_s_library_or_refused(data: st.DataObject, schema: str) -> None:
    dice = data.draw(st.randoms())
    values = [damaged(value, dice) for value in data.draw(st.lists(bodies(schema), min_size=1, max_size=8))]
    for body, found in zip(values, decoded(reading(schema), [in_wire_format(each) for each in values]), strict=True):
        assert repr(found) == repr(read_by_oracle(schema, body)) or str(found).startswith("value: ")


@given(st.data(), schemas())
def test_every_occurrence_of_a_field_is_read_and_refused_as_by_google_s_library(
    data: st.DataObject, schema: str
) -> None:
    message = message_class(schema).DESCRIPTOR
    values = data.draw(st.lists(occurrences(message), min_size=1, max_size=8))
    wanted = data.draw(st.lists(st.sampled_from([field.name for field in message.fields]), unique=True, min_size=1))
    for body, found in zip(values, decoded(reading(schema, *wanted), list(map(in_wire_format, values))), strict=True):
        expected = read_by_oracle(schema, body, wanted)
        assert repr(found) == repr(expected) or (expected is None and str(found).startswith("value: "))


# ---- rules of the wire format, in bytes

EVERY = """
syntax = "proto2";
enum Color { RED = 0; GREEN = 1; }
message R {
  optional int32 n = 1 [default = 7];
  repeated int32 list = 2 [packed = true];
  oneof choice { int64 number = 3; string text = 4; R inner = 5; Point point = 6; }
  optional group Both = 7 { optional int32 n = 1; optional sint32 z = 2; }
  optional Color color = 8;
  map<string, int64> counts = 9;
}
message Point { optional int32 x = 1; optional int32 y = 2; }
"""
NOTHING = {"n": None, "list": "[]", "number": None, "text": None, "inner": None, "point": None, "both": None}
NOTHING |= {"color": None, "counts": "{}"}


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        pytest.param(b"", {}, id="absent fields are null, or empty if they are repeated"),
        pytest.param(b"\x08\5\x08\6", {"n": 6}, id="the last value of a field counts"),
        pytest.param(b"\x08\xfb\xff\xff\xff\xff\xff\xff\xff\xff\1", {"n": -5}, id="a negative int32 has ten bytes"),
        pytest.param(b"\x0a\1x", {}, id="a field of another wire type is skipped"),
        pytest.param(b"\xa2\6\2ab\xa8\6\1\x08\5", {"n": 5}, id="unknown fields are skipped"),
        pytest.param(b"\xa3\6\x08\5\xab\6\xac\6\xa4\6\x08\1", {"n": 1}, id="an unknown group is skipped"),
        pytest.param(b"\x12\2\1\2\x10\3", {"list": "[1,2,3]"}, id="numbers come packed and one by one"),
        pytest.param(b"\x18\5\x22\1a", {"text": "a"}, id="a member of a oneof clears the others"),
        pytest.param(b"\x32\2\x08\1\x32\2\x10\2", {"point": {"x": 1, "y": 2}}, id="messages are merged"),
        pytest.param(b"\x32\2\x08\1\x18\5\x32\2\x10\2", {"point": {"x": None, "y": 2}}, id="a cleared message is new"),
        pytest.param(b"\x2a\2\x08\1", {"inner": '{"n":1,"list":[],"counts":{}}'}, id="a type in itself is text"),
        pytest.param(b"\x3b\x08\1\x10\3\x3c", {"both": {"n": 1, "z": -2}}, id="a group has columns"),
        pytest.param(b"\x40\1\x40\5", {"color": "GREEN"}, id="proto2 ignores an unknown symbol"),
        pytest.param(b"\x4a\5\x0a\1a\x10\2", {"counts": '{"a":"2"}'}, id="a map is text"),
    ],
)
def test_fields_are_read_as_the_specification_says(body: bytes, columns: dict[str, object]) -> None:
    assert decoded(reading(EVERY), [in_wire_format(body)]) == [NOTHING | columns]
    assert read_by_oracle(EVERY, body) == NOTHING | columns


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x08", id="a number without an end"),
        pytest.param(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", id="a number of eleven bytes"),
        pytest.param(b"\x22\5ab", id="text beyond the value"),
        pytest.param(b"\x32\3\x0a\5a", id="text beyond its message"),
        pytest.param(b"\0\1", id="field 0"),
        pytest.param(b"\x0f", id="wire type 7"),
        pytest.param(b"\xa3\6\x08\5", id="a group without an end"),
        pytest.param(b"\xa3\6\xac\6", id="the end of another group"),
        pytest.param(b"\x3c", id="an end without a group"),
        pytest.param(b"\x12\1\x80", id="packed numbers without an end"),
        pytest.param(b"\xa3\6" * 101 + b"\xa4\6" * 101, id="groups 101 deep"),
    ],
)
def test_damage_is_found_although_nobody_reads_the_field(body: bytes) -> None:
    assert decoded(reading(EVERY, "color"), [in_wire_format(body)]) == ["value: not Protobuf of schema 17"]
    assert read_by_oracle(EVERY, body) is None


def test_an_open_symbol_without_a_name_is_its_number_and_defaults_are_read_without_presence() -> None:
    schema = 'syntax = "proto3"; enum Color { RED = 0; } message R { Color color = 1; string text = 2; bool on = 3; }'
    given_values = [in_wire_format(b"\x08\5"), in_wire_format(b"")]
    assert decoded(reading(schema), list(given_values)) == [
        {"color": "5", "text": "", "on": False},
        {"color": "RED", "text": "", "on": False},
    ]


PROTO3 = """
syntax = "proto3";
message R {
  string f = 1;
  bytes raw = 2;
  oneof choice { string text = 3; int64 number = 4; Inner inner = 5; }
  repeated string list = 6;
  map<string, string> names = 7;
  Inner more = 8;
}
message Inner { string f = 1; repeated Inner inner = 2; }
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a\1\xff", id="a field"),
        pytest.param(b"\x0a\1\xff\x0a\1a", id="a field that comes again"),
        pytest.param(b"\x1a\1\xff\x20\1", id="a member of a oneof that another one replaces"),
        pytest.param(b"\x2a\3\x0a\1\xff\x1a\1a", id="a message that another member of its oneof replaces"),
        pytest.param(b"\x42\3\x0a\1\xff\x42\3\x0a\1a", id="a message that is merged with the next"),
        pytest.param(b"\x42\5\x12\3\x0a\1\xff", id="a repeated message in a message"),
        pytest.param(b"\x32\1a\x32\1\xff", id="a repeated field"),
        pytest.param(b"\x3a\3\x0a\1\xff", id="the key of a map"),
        pytest.param(b"\x3a\6\x12\1\xff\x12\1a", id="a value of a map that comes again"),
    ],
)
@pytest.mark.parametrize("wanted", ["raw", "f", "more.f", ""])
def test_text_of_proto3_is_utf_8_wherever_it_is_and_whatever_is_read(body: bytes, wanted: str) -> None:
    decoder = reading(PROTO3, *filter(None, [wanted]))
    assert decoded(decoder, [in_wire_format(body)]) == ["value: not Protobuf of schema 17"]
    assert read_by_oracle(PROTO3, body) is None


def test_text_of_a_field_with_another_wire_type_or_of_an_unknown_field_is_bytes() -> None:
    bodies_ = [in_wire_format(b"\x12\1\xff"), in_wire_format(b"\x4a\1\xff"), in_wire_format(b"\x22\1\xff")]
    assert decoded(reading(PROTO3, "raw"), list(bodies_)) == [{"raw": b"\xff"}, {"raw": b""}, {"raw": b""}]


def test_a_field_of_a_message_that_nobody_wants_may_have_another_type() -> None:
    was = 'syntax = "proto3"; message R { In in = 1; } message In { string a = 1; int64 b = 2; }'
    now = was.replace("string a", "double a")
    value = in_wire_format(b"\x0a\5\x0a\1x\x10\5")
    assert decoded(reading(now, "in.b", writers={17: was}), [value]) == [{"in": {"b": 5}}]
    [refused] = decoded(reading(now, writers={17: was}), [value])
    assert refused == "value: schema 17 cannot be read: field a (1) is string, and is read as double"


def test_text_that_is_no_utf_8_is_refused_where_it_is_a_column() -> None:
    schema = 'syntax = "proto2"; message R { optional string text = 1; optional int32 n = 2; }'
    value = in_wire_format(b"\x0a\1\xff\x10\3")
    assert decoded(reading(schema, "text", "n"), [value]) == ["value: text is no string"]
    assert decoded(reading(schema, "n"), [value]) == [{"n": 3}]


@pytest.mark.parametrize(
    ("written", "read", "cause"),
    [
        ("int32", "int64", None),
        ("uint32", "bool", None),
        ("string", "bytes", None),
        ("int32", "sint32", "field f (1) is int32, and is read as sint32"),
        ("repeated int32", "int32", "field f (1) is repeated int32, and is read as int32"),
        ("float", "fixed32", "field f (1) is float, and is read as fixed32"),
        ("P", "Q", "field x (1) is string, and is read as double"),
    ],
)
def test_a_type_is_read_as_another_only_where_protobuf_allows_it(written: str, read: str, cause: str | None) -> None:
    parts = "message P { string x = 1; } message Q { double x = 1; }"
    was, now = (f'syntax = "proto3"; message R {{ {type} f = 1; }} {parts}' for type in (written, read))
    [found] = decoded(reading(now, writers={17: was}), [in_wire_format(b"")])
    assert (found if isinstance(found, str) else None) == (cause and f"value: schema 17 cannot be read: {cause}")


# ---- what has no JSON

SPECIAL = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
message R {
  int32 id = 1;
  repeated string tags = 2;
  google.protobuf.Any payload = 3;
  repeated google.protobuf.Timestamp times = 4;
  google.protobuf.FieldMask mask = 5;
  google.protobuf.Value number = 6;
  Around around = 7;
}
message Around { repeated string names = 1; google.protobuf.Any payload = 2; }
message Inner { int32 x = 1; }
"""


def special(**fields: object) -> bytes:
    made = message_class(SPECIAL)
    return in_wire_format(made(id=1, tags=["a"], **fields).SerializeToString())


WITHOUT_JSON: list[tuple[str, dict[str, object]]] = [
    ("payload", {"payload": {"type_url": "type.googleapis.com/other.Thing"}}),
    ("payload", {"payload": {"type_url": "type.googleapis.com/Inner", "value": b"\x08"}}),
    ("times", {"times": [{"seconds": 2**50}]}),
    ("mask", {"mask": {"paths": ["a_B"]}}),
    ("number", {"number": {"number_value": float("nan")}}),
    ("around.payload", {"around": {"names": ["b"], "payload": {"type_url": "other.Thing"}}}),
]


@pytest.mark.parametrize(("path", "fields"), WITHOUT_JSON)
def test_a_field_that_has_no_json_refuses_a_value_only_where_it_is_read(path: str, fields: dict[str, object]) -> None:
    given_values = [special(), special(**fields)]
    assert decoded(reading(SPECIAL, "id", "tags"), list(given_values)) == [{"id": 1, "tags": '["a"]'}] * 2
    [beside] = decoded(reading(SPECIAL, "around.names"), [given_values[1]])
    assert beside == {"around": {"names": '["b"]'} if path.startswith("around") else None}
    [good, refused] = decoded(reading(SPECIAL), list(given_values))
    assert good["id"] == 1 and refused == f"value: {path} has no JSON"


def test_any_of_a_type_of_the_schema_is_read() -> None:
    inner = message_class(SPECIAL, "Inner")(x=5).SerializeToString()
    value = special(payload={"type_url": "type.googleapis.com/Inner", "value": inner})
    assert decoded(reading(SPECIAL, "payload"), [value]) == [{"payload": '{"@type":"type.googleapis.com/Inner","x":5}'}]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x12\1\xff", id="repeated"),
        pytest.param(b"\x1a\6\x0a\1a\x12\1\xff", id="of a map"),
        pytest.param(b"\x1a\6\x0a\1\xff\x12\1a", id="a key of a map"),
        pytest.param(b"\x22\3\x12\1\xff", id="of a message"),
    ],
)
def test_text_of_proto2_that_is_no_utf_8_is_refused_in_a_json_text(body: bytes) -> None:
    schema = """syntax = "proto2"; message R { optional int32 n = 1; repeated string list = 2;
    map<string, string> map = 3; repeated R deep = 4; map<string, bytes> raw = 5; extensions 9 to 10; }
    extend R { repeated string list = 9; }"""
    extended = b"\x4a\1\xff" + b"\x2a\6\x0a\1a\x12\1\xff" + b"\x12\3\\x1"  # what is no field of R, bytes, and text
    values = [in_wire_format(each) for each in (body, extended)]
    assert decoded(reading(schema, "n"), list(values)) == [{"n": None}] * 2
    [refused, good] = decoded(reading(schema), list(values))
    assert refused.endswith(" has no JSON") and (good["list"], good["raw"]) == ('["\\\\x1"]', '{"a":"/w=="}')
