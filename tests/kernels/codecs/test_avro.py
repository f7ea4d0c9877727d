"""Avro values as typed columns, compared with fastavro."""

from __future__ import annotations

import copy
import math
from datetime import time
from decimal import Decimal
from io import BytesIO
from typing import Any

import orjson
import pyarrow as pa
import pytest
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs import paths
from tests.kernels.codecs.avro_strategies import (
    Known,
    decoded,
    in_columns,
    read_by_oracle,
    schemas,
    values,
    written,
)
from tests.kernels.codecs.damage import damaged
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.values import Avro, part_of
from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.schemas import columns_of, name_of, read_schema
from tidegate.kernels.codecs.registered import columns_of as columns_of_registered
from tidegate.kernels.codecs.registry_format import PREFIX

pytestmark = pytest.mark.fast


def record(**fields: Any) -> dict[str, Any]:
    """A schema with these fields; a field may have a default: (type, default)."""
    listed = [
        {"name": name, "type": type[0], "default": type[1]} if isinstance(type, tuple) else {"name": name, "type": type}
        for name, type in fields.items()
    ]
    return {"type": "record", "name": "R", "fields": listed}


def reading(reader: Any, writers: dict[int, Any], *wanted: str) -> AvroDecoder:
    """A decoder of these paths of the reader's schema."""
    text = orjson.dumps(reader).decode()
    columns = columns_of(read_schema(text))
    return AvroDecoder(
        text, part_of(columns, [tuple(path.split(".")) for path in wanted or columns.names]), Known(writers)
    )


@given(st.data(), schemas())
def test_values_are_read_as_by_fastavro_and_only_wanted_paths(data: st.DataObject, schema: dict[str, Any]) -> None:
    decoder = reading(schema, {17: schema}, *data.draw(paths.some(reading(schema, {}).schema)))
    given_values = data.draw(st.lists(values(schema), max_size=4))
    bytes_ = [written(schema, value) for value in given_values]
    expected = [in_columns(schema, read_by_oracle(value, schema)) for value in bytes_]
    assert decoded(decoder, list(bytes_)) == [paths.part(row, decoder.schema) for row in expected]


@given(st.data(), schemas(times=False))
def test_a_damaged_value_is_read_as_by_fastavro_or_refused(data: st.DataObject, schema: dict[str, Any]) -> None:
    value = written(schema, data.draw(values(schema)))
    given_bytes = damaged(value, data.draw(st.randoms()), first=PREFIX)
    [found] = decoded(reading(schema, {17: schema}), [given_bytes])
    if isinstance(found, dict):
        expected = in_columns(schema, read_by_oracle(given_bytes, schema))
        assert repr(found) == repr({name: expected[name] for name in found})  # nan is not itself
    else:
        assert found.startswith("value: ")


PROMOTED = {"int": ["long", "float", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"]}


@st.composite
def evolved(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """A later schema: fields are gone, are new with a default, have another order, or a type that takes the former."""
    reader = copy.deepcopy(schema)
    fields = [field for field in reader["fields"] if draw(st.integers(0, 4))]
    for field in fields:
        kind = field["type"]
        if isinstance(kind, str) and kind in PROMOTED and draw(st.booleans()):
            field["type"] = draw(st.sampled_from(PROMOTED[kind]))
        elif isinstance(kind, dict) and kind["type"] == "record":
            field["type"] = draw(evolved(kind))
        if name_of(field["type"]) not in ("union", "map", "array") and draw(st.booleans()):
            field["type"] = ["null", field["type"]]
    new = draw(
        st.sampled_from(
            [
                ("string", "hé"),
                ("long", -5),
                ("double", 0.5),
                (["null", "int"], None),
                ("bytes", "\u00ff"),
                ("boolean", True),
            ]
        )
    )
    fields.append({"name": "new", "type": new[0], "default": new[1]})
    return {**reader, "fields": draw(st.permutations(fields))}


@given(st.data(), schemas())
def test_values_of_an_older_schema_are_read_as_the_specification_resolves_them(
    data: st.DataObject, schema: dict[str, Any]
) -> None:
    reader = data.draw(evolved(schema))
    bytes_ = [written(schema, value) for value in data.draw(st.lists(values(schema), min_size=1, max_size=3))]
    found = decoded(reading(reader, {17: schema}), list(bytes_))
    expected = [in_columns(reader, read_by_oracle(value, schema, reader)) for value in bytes_]
    names = [field["name"] for field in reader["fields"]]
    assert found == [{name: row[name] for name in names} for row in expected]


def test_rows_of_several_writers_are_read_each_by_its_own_schema() -> None:
    old, new = record(n="int"), record(note="string", n="long")
    rows = [written(old, {"n": 1}, 3), written(new, {"n": 2**40, "note": "x"}, 4), written(old, {"n": 3}, 3)]
    reader = record(n="long", note=("string", "none"))
    assert decoded(reading(reader, {3: old, 4: new}), list(rows)) == [
        {"n": 1, "note": "none"},
        {"n": 2**40, "note": "x"},
        {"n": 3, "note": "none"},
    ]


def test_a_value_that_cannot_be_read_is_refused_with_its_schema_and_the_others_are_read() -> None:
    schema, text = record(n="long"), record(n="string")
    given_values = [
        None,
        b"",
        b"{}{}{}",
        written(schema, {"n": 1}),
        written(schema, {"n": 1}) + b"\0",
        written(schema, {"n": 1}, 18),
        written(text, {"n": "1"}, 19),
        written(schema, {"n": 1}, 20),
    ]
    assert decoded(reading(schema, {17: schema, 19: text, 20: "long"}), given_values) == [
        "value: null",
        "value: names no schema",
        "value: names no schema",
        {"n": 1},
        "value: not Avro of schema 17",
        "value: schema 18 is unknown",
        "value: schema 19 has what the reader's schema lacks",
        "value: schema 20 cannot be read: not the schema of a record",
    ]


@pytest.mark.parametrize(
    ("writer", "reader", "fails"),
    [
        (record(n="long"), record(n="int"), True),
        (record(n="double"), record(n="float"), True),
        (record(n="long"), record(n="long", m="long"), True),
        (record(n=["null", "long"]), record(n="long"), False),
        (
            record(n={"type": "fixed", "name": "F", "size": 2}),
            record(n={"type": "fixed", "name": "F", "size": 3}),
            True,
        ),
        (
            record(n={"type": "long", "logicalType": "timestamp-millis"}),
            record(n={"type": "long", "logicalType": "timestamp-micros"}),
            True,
        ),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_and_a_union_only_where_it_does_not(
    writer: Any, reader: Any, fails: bool
) -> None:
    value = (
        {"long": 1, "double": 0.5}.get(writer["fields"][0]["type"], 1)
        if not isinstance(writer["fields"][0]["type"], dict | list)
        else b"ab"
        if "size" in writer["fields"][0]["type"]
        else 1
    )
    [found] = decoded(reading(reader, {17: writer}), [written(writer, {"n": value})])
    assert (found == "value: schema 17 has what the reader's schema lacks") == fails
    if isinstance(writer["fields"][0]["type"], list):
        [null] = decoded(reading(reader, {17: writer}), [written(writer, {"n": None})])
        assert null == "value: schema 17 has what the reader's schema lacks"


def test_a_symbol_that_the_reader_lacks_is_its_default_or_refused() -> None:
    def suits(*symbols: str, **more: Any) -> Any:
        return record(s={"type": "enum", "name": "S", "symbols": list(symbols), **more})

    writer = suits("A", "B", "C")
    given_values = [written(writer, {"s": symbol}) for symbol in "ABC"]
    assert decoded(reading(suits("C", "A"), {17: writer}), list(given_values)) == [
        {"s": "A"},
        "value: schema 17 has what the reader's schema lacks",
        {"s": "C"},
    ]
    assert decoded(reading(suits("X", "C", default="X"), {17: writer}), list(given_values))[:2] == [{"s": "X"}] * 2


def test_a_decimal_with_too_many_digits_is_refused() -> None:
    wide = record(d={"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2})
    narrow = record(d={"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    given_values = [written(wide, {"d": Decimal(each)}) for each in ("99.99", "-99.99", "100.00", "-1e20")]
    refused = "value: d is no decimal"
    expected = [{"d": Decimal("99.99")}, {"d": Decimal("-99.99")}, refused, refused]
    assert decoded(reading(narrow, {17: wide}), list(given_values)) == expected


@pytest.mark.parametrize(
    ("base", "unit", "day"), [("int", "time-millis", 86_400_000), ("long", "time-micros", 86_400_000_000)]
)
def test_a_time_that_no_day_has_is_refused(base: str, unit: str, day: int) -> None:
    schema = record(t=["null", {"type": base, "logicalType": unit}])
    given_values = [written(record(t=["null", base]), {"t": each}) for each in (0, None, day - 1, -1, day)]
    *times, before, behind = decoded(reading(schema, {17: schema}), list(given_values))
    assert [each["t"] and each["t"].replace(microsecond=0) for each in times] == [time(0), None, time(23, 59, 59)]
    assert before == behind == f"value: t is no {unit}"


@pytest.mark.parametrize("kind", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 4}])
def test_a_decimal_with_too_many_digits_is_refused_in_a_text_as_well_and_no_digit_is_lost(kind: dict[str, Any]) -> None:
    def numbers(precision: int) -> Any:
        items = {**kind, "logicalType": "decimal", "precision": precision, "scale": 2}
        return record(ds={"type": "array", "items": items})

    given_values = [written(numbers(8), {"ds": [Decimal(each)]}) for each in ("99.99", "-99.99", "123456.78", "0.05")]
    refused = "value: not Avro of schema 17"
    expected = [{"ds": '["99.99"]'}, {"ds": '["-99.99"]'}, refused, {"ds": '["0.05"]'}]
    assert decoded(reading(numbers(4), {17: numbers(4)}), list(given_values)) == expected


def test_a_field_that_nobody_wants_is_not_decoded() -> None:
    schema = record(text="string", n="long")
    value = written(schema, {"text": "ab", "n": 5}).replace(b"ab", b"\xff\xff")
    assert decoded(reading(schema, {17: schema}, "n"), [value]) == [{"n": 5}]
    assert decoded(reading(schema, {17: schema}), [value]) == ["value: text is no string"]


def test_a_field_of_a_record_that_nobody_wants_is_neither_decoded_nor_resolved() -> None:
    inner = {**record(text="string", n="long"), "name": "I"}
    schema = record(inside=inner, m="long")
    value = written(schema, {"inside": {"text": "ab", "n": 5}, "m": 1}).replace(b"ab", b"\xff\xff")
    assert decoded(reading(schema, {17: schema}, "inside.n"), [value]) == [{"inside": {"n": 5}}]
    other = {**record(text="long", n="long"), "name": "I"}
    assert decoded(reading(record(inside=other), {17: schema}, "inside.n"), [value]) == [{"inside": {"n": 5}}]
    [refused] = decoded(reading(record(inside=other), {17: schema}), [value])
    assert refused == "value: schema 17 has what the reader's schema lacks"


def test_a_branch_that_lacks_a_field_has_its_default_and_not_the_bytes_of_another_branch() -> None:
    tags = {"type": "array", "items": "long"}
    full, empty = {**record(tags=tags), "name": "I"}, {**record(), "name": "Former"}
    writer = record(inside=["null", full, empty])
    inner = {**record(tags=(tags, [7])), "name": "I", "aliases": ["Former"]}
    bodies = [b"\2\2\4\0", b"\4", b"\0"]  # [2], the branch without the field, null
    found = decoded(reading(record(inside=["null", inner]), {17: writer}), [b"\0\0\0\0\x11" + body for body in bodies])
    assert found == [{"inside": {"tags": "[2]"}}, {"inside": {"tags": "[7]"}}, {"inside": None}]


def test_a_record_is_found_by_its_name_or_an_alias_of_the_reader_at_the_top_as_inside() -> None:
    old, new = record(x="int"), {**record(x="int"), "name": "New", "aliases": ["com.x.R"]}
    assert decoded(reading(new, {17: old}), [written(old, {"x": 1})]) == [{"x": 1}]
    within = {17: record(inside={**old, "name": "I"})}
    reader = record(inside={**new, "name": "J", "aliases": ["I"]})
    assert decoded(reading(reader, within), [written(within[17], {"inside": {"x": 1}})]) == [{"inside": {"x": 1}}]
    [refused] = decoded(reading({**new, "aliases": ["S"]}, {17: old}), [written(old, {"x": 1})])
    assert refused == "value: schema 17 has what the reader's schema lacks"


@pytest.mark.parametrize(
    ("fields", "given", "expected"),
    [
        pytest.param({"b": ["a"]}, {"a": 1}, {"b": 1}, id="an alias is a name"),
        pytest.param({"b": ["z", "a"]}, {"a": 1}, {"b": 1}, id="each alias is"),
        pytest.param({"b": ["a"]}, {"a": 1, "b": 2}, {"b": 2}, id="the name comes before an alias"),
        pytest.param({"b": ["a"]}, {"b": 2, "a": 1}, {"b": 2}, id="in any order"),
        pytest.param(
            {"b": ["a"], "a": []}, {"a": 1}, {"b": 0, "a": 1}, id="the name of a field is no alias of another"
        ),
        pytest.param({"b": ["a"], "c": ["a"]}, {"a": 1}, {"b": 1, "c": 0}, id="the first of two that have an alias"),
    ],
)
def test_a_field_is_found_by_its_name_and_then_by_its_aliases_whatever_is_wanted(
    fields: dict[str, list[str]], given: dict[str, int], expected: dict[str, int]
) -> None:
    listed = [{"name": name, "type": "int", "default": 0, "aliases": aliases} for name, aliases in fields.items()]
    reader, writer = {**record(), "fields": listed}, record(**dict.fromkeys(given, "int"))
    assert decoded(reading(reader, {17: writer}), [written(writer, given)]) == [expected]
    for name in fields:
        found = decoded(reading(reader, {17: writer}, name), [written(writer, given)])
        assert found == [{name: expected[name]}]


def test_a_type_that_contains_itself_is_a_problem_of_the_reader_and_a_refusal_of_the_writer() -> None:
    tree = record(n="long", next=["null", "R"])
    with pytest.raises(InvalidValue, match="contains itself"):
        columns_of(read_schema(orjson.dumps(tree).decode()))
    [found] = decoded(reading(record(n="long"), {17: tree}), [written(tree, {"n": 1, "next": None})])
    assert found == "value: schema 17 cannot be read: type R contains itself"


def test_items_that_take_no_bytes_are_no_work_however_many_there_are() -> None:
    schema = record(nothing={"type": "array", "items": "null"}, n="long")
    value = written(schema, {"nothing": [None] * 3, "n": 5})
    assert decoded(reading(schema, {17: schema}, "n"), [value]) == [{"n": 5}]
    endless = value[:5] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + value[6:]
    assert decoded(reading(schema, {17: schema}, "n"), [endless]) == ["value: not Avro of schema 17"]


def test_text_of_a_value_defines_each_named_type_once_however_it_is_referred_to() -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "x", "type": "int"}]}
    item = {"type": "record", "name": "Item", "fields": [{"name": "price", "type": money}]}
    fields = [{"name": "old", "type": "Money"}, {"name": "item", "type": "Item"}, {"name": "new", "type": "Money"}]
    changes = {"type": "array", "items": {"type": "record", "name": "Change", "fields": fields}}
    schema = record(item=item, changes=changes)
    change = {"old": {"x": 2}, "item": {"price": {"x": 3}}, "new": {"x": 4}}
    [found] = decoded(
        reading(schema, {17: schema}), [written(schema, {"item": {"price": {"x": 1}}, "changes": [change]})]
    )
    assert found == {"item": {"price": {"x": 1}}, "changes": orjson.dumps([change]).decode()}


def test_a_decimal_without_a_precision_is_bytes_in_a_text_as_in_a_column() -> None:
    number = {"type": "bytes", "logicalType": "decimal"}
    schema, plain = record(n=number, ns={"type": "array", "items": number}), {"type": "array", "items": "bytes"}
    value = written(record(n="bytes", ns=plain), {"n": b"\1", "ns": [b"\xff"]})
    assert decoded(reading(schema, {17: schema}), [value]) == [{"n": b"\1", "ns": '["\u00ff"]'}]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_that_json_lacks_are_text_in_a_text(kind: str) -> None:
    schema = record(numbers={"type": "map", "values": ["null", {"type": "array", "items": kind}]})
    value = written(schema, {"numbers": {"a": [1.5, math.nan, math.inf, -math.inf], "b": None}})
    expected = '{"a":[1.5,"NaN","Infinity","-Infinity"],"b":null}'
    assert decoded(reading(schema, {17: schema}), [value]) == [{"numbers": expected}]


@pytest.mark.parametrize("failure", [KeyError("x"), SchemaParseException("x"), RecursionError(), AssertionError()])
def test_a_value_of_which_no_text_can_be_made_is_refused_whatever_fails_and_the_others_are_read(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(content: BytesIO, schema: Any, reader: Any) -> Any:
        if content.getvalue() == b"\2\1\0":
            raise failure
        return schemaless_reader(content, schema, reader)

    monkeypatch.setattr("fastavro.schemaless_reader", read)
    schema = record(ns={"type": "array", "items": "int"})
    given_values = [written(schema, {"ns": [number]}) for number in (-1, 2)]
    assert decoded(reading(schema, {17: schema}), list(given_values)) == ["value: not Avro of schema 17", {"ns": "[2]"}]


@pytest.mark.parametrize("size", [None, -1, 2**31, "2", 1.0, []])
def test_the_size_of_a_fixed_is_a_number_of_bytes(size: Any) -> None:
    schema = record(n="int", f={"type": "fixed", "name": "F", "size": size})
    with pytest.raises(InvalidValue, match=r"schema|F has"):
        read_schema(orjson.dumps(schema).decode())
    [found] = decoded(reading(record(n="int"), {17: schema}), [b"\0\0\0\0\x11\2\0\0"])
    assert found.startswith("value: schema 17 cannot be read: ")


WEATHER = {"type": "record", "name": "Weather", "namespace": "com.x", "fields": [{"name": "gust", "type": "Speed"}]}
SPEED = {"type": "record", "name": "com.x.Speed", "fields": [{"name": "unit", "type": "com.y.Unit"}]}
UNITS = [{"type": "enum", "name": "Unit", "namespace": "com.y", "symbols": ["KNOTS", "MPS"]}]


def test_a_writer_s_schema_may_refer_to_types_of_others_which_refer_to_others() -> None:
    writer = record(w="com.x.Weather", ws={"type": "array", "items": "com.x.Speed"})
    inlined = {
        **WEATHER,
        "fields": [{"name": "gust", "type": {**SPEED, "fields": [{"name": "unit", "type": UNITS[0]}]}}],
    }
    reader = record(w=inlined, ws={"type": "array", "items": "com.x.Speed"})
    text = orjson.dumps(reader).decode()
    value = written(reader, {"w": {"gust": {"unit": "MPS"}}, "ws": [{"unit": "KNOTS"}]})

    def read(*imports: Any) -> list[Any]:
        source = Known({17: writer}, *imports)
        return decoded(AvroDecoder(text, columns_of(read_schema(text)), source), [value])

    others = [{**WEATHER, "name": "Other"}, {**record(w=inlined), "name": "Unneeded"}, 5, "no type"]
    for imports in ([WEATHER, SPEED, UNITS], [UNITS, SPEED, WEATHER, *others]):
        assert read(*imports) == [{"w": {"gust": {"unit": "MPS"}}, "ws": '[{"unit":"KNOTS"}]'}]
    lacking = "value: schema 17 cannot be read: not a schema of Avro: type {} is not defined"
    assert read(WEATHER, SPEED) == [lacking.format("com.y.Unit")]
    assert read() == [lacking.format("com.x.Weather")]


def test_types_that_refer_to_each_other_across_schemas_are_a_refusal() -> None:
    writer = record(a="A")
    first, second = ({**record(x=other), "name": name} for name, other in ("AB", "BA"))
    source = Known({17: writer}, first, second)
    text = orjson.dumps(record(n=("int", 1))).decode()
    [found] = decoded(AvroDecoder(text, columns_of(read_schema(text)), source), [written(record(), {})])
    assert found == "value: schema 17 cannot be read: not a schema of Avro: type A is not defined"


@pytest.mark.parametrize("name", [[], {}, None, 5, "n"])
def test_each_field_has_a_name_of_its_own(name: Any) -> None:
    inside = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}, {"name": name, "type": "int"}]}
    schema = record(n="int", i=inside)
    with pytest.raises(InvalidValue, match=r"schema|has the field"):
        read_schema(orjson.dumps(schema).decode())
    [found] = decoded(reading(record(n="int"), {17: schema}), [b"\0\0\0\0\x11\2\2\2"])
    assert found.startswith("value: schema 17 cannot be read: ")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"type": "record"}', '{"type": "record", "name": "R", "fields": 5}', '"int"']
)
def test_a_text_that_is_no_schema_of_records_is_a_problem_with_its_remedy(text: str) -> None:
    with pytest.raises(InvalidValue, match="schema") as refused:
        read_schema(text)
    assert refused.value.remedy.startswith("write a record")


def test_every_type_has_the_column_that_says_most_of_it() -> None:
    schema = record(
        at={"type": "long", "logicalType": "timestamp-millis"},
        price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        tags={"type": "array", "items": "string"},
        n=["null", "int"],
        odd={"type": "string", "logicalType": "date"},
    )
    found = columns_of(read_schema(orjson.dumps(schema).decode()))
    assert found.types == [pa.timestamp("ms"), pa.decimal128(9, 2), pa.large_string(), pa.int32(), pa.string()]


# ---- defaults of the reader

INNER = {
    "type": "record",
    "name": "Q",
    "fields": [{"name": "q", "type": "int"}, {"name": "z", "type": "int", "default": 1}],
}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
UUID = {"type": "string", "logicalType": "uuid"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}
GOOD_DEFAULTS: list[tuple[Any, Any, Any]] = [
    (ENUM, "A", "A"),
    ("bytes", "\u00ff", b"\xff"),
    (FIXED, "ab", b"ab"),
    ("int", 2**31 - 1, 2**31 - 1),
    ("long", -(2**63), -(2**63)),
    ("float", 1, 1.0),
    ("double", "-Infinity", -math.inf),
    (UUID, "00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff"),
    (DECIMAL, "\u009d", Decimal("-9.9")),
    (INNER, {"q": 3}, {"q": 3, "z": 1}),
    (["null", "int"], 5, 5),
    (["int", "null"], None, None),
    (["int", "string", "null"], "a", '"a"'),
    ({"type": "array", "items": "int"}, [1], "[1]"),
    ({"type": "map", "values": INNER}, {"a": {"q": 1}}, '{"a":{"q":1}}'),
]
BAD_DEFAULTS: list[tuple[Any, Any]] = [
    (ENUM, "Z"),
    ({**ENUM, "default": "Z"}, "A"),
    ({"type": "int", "logicalType": "time-millis"}, 86_400_000),
    ("bytes", "\u20ac"),
    (FIXED, "abc"),
    ("int", 2**31),
    ("int", True),
    ("long", 2**63),
    ("float", 1e39),
    ("double", "x"),
    (UUID, "x"),
    (DECIMAL, "\u0064"),
    (INNER, {}),
    (INNER, {"q": 2**31}),
    (["null", "int"], 2**31),
    (["null", ENUM], "Z"),
    ({"type": "array", "items": "int"}, [2**31]),
    ({"type": "map", "values": INNER}, {"a": {}}),
]


def avro_values(type: Any, default: Any) -> Avro:
    return Avro(orjson.dumps(record(b=(type, default))).decode(), "/schemas")


@pytest.mark.parametrize(("type", "default", "value"), GOOD_DEFAULTS)
def test_a_field_that_a_value_lacks_is_the_default(type: Any, default: Any, value: Any) -> None:
    assert columns_of_registered(avro_values(type, default)).names == ["b"]
    writer = record(n="int")
    assert decoded(reading(record(b=(type, default)), {17: writer}), [written(writer, {"n": 1})]) == [{"b": value}]


@pytest.mark.parametrize(("type", "default"), BAD_DEFAULTS)
def test_a_default_that_is_no_value_of_its_type_is_a_problem_of_the_reader_s_schema_alone(
    type: Any, default: Any
) -> None:
    with pytest.raises(InvalidValue, match=r"the default|Default value"):
        columns_of_registered(avro_values(type, default))
    nested = {**record(b=(type, default)), "name": "Nested"}
    with pytest.raises(InvalidValue, match=r"the default|Default value"):
        columns_of_registered(avro_values({"type": "array", "items": nested}, []))


@pytest.mark.parametrize(
    ("type", "default"), [*BAD_DEFAULTS, ("int", None), ("string", 0), (["null", "int"], "null"), (FIXED, 5)]
)
def test_a_writer_s_default_does_not_matter(type: Any, default: Any) -> None:
    optional = type if isinstance(type, list) else ["null", type]
    writer, value = record(n="int", default=(optional, default)), b"\0\0\0\0\x11" + b"\2\0"
    assert decoded(reading(record(n="int"), {17: writer}), [value]) == [{"n": 1}]
