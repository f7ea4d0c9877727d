"""Stateless steps of a pipeline: what becomes of each row, and which bytes leave."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.kernels.codecs import avro_strategies as avro
from tests.kernels.codecs import protobuf_strategies as protobuf
from tests.kernels.codecs.damage import damaged
from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.records import Records, Row
from tidegate.contracts.values import Avro, Primitive, Protobuf, Values, schema_of
from tidegate.operators.pipeline.evaluated.compiling import compiled
from tidegate.operators.pipeline.evaluated.encoding import encoding
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.steps import Encode, Filter, Require, Select, Stateless, WithColumns

pytestmark = pytest.mark.fast

FLIGHTS = Values.of_fields(schema_of({"delay": "int64", "gust": "float64", "to": {"city": "string"}, "tags": "json"}))
COUNTS = Values("single", pa.schema({"count": pa.int64()}))


def place(values: Values = FLIGHTS, key: Primitive = "bytes", **more: Any) -> Place:
    return Place(key=key, values=values, windows="none", **more)


def rows_of(*values: Any, key: bytes | None = b"k") -> list[Row]:
    texts = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in values]
    return [Row(key, text, 10 + at, at) for at, text in enumerate(texts)]


def sift(steps: list[Stateless], rows: list[Row], at: Place | None = None) -> Sifted:
    return compiled(steps, at or place())(Flow.of_input(Records.from_rows(rows)))


def values_of(sifted: Sifted) -> list[bytes | None]:
    return [row.value for row in sifted.flow.rows.rows() if not row.time_only]


def test_an_untouched_value_leaves_byte_for_byte() -> None:
    value = b' {"delay" : 2e1, "delay":20, "other": [1,2 ]} '
    sifted = sift([Filter(filter="delay > 15"), Require(require="gust is null", reason="gusty")], rows_of(value))
    assert values_of(sifted) == [value]


@pytest.mark.parametrize("condition", ["timestamp >= 0", "delay * 2 >= 0"])
def test_a_filter_that_drops_nothing_copies_nothing(condition: str) -> None:
    flow = Flow.of_input(Records.from_rows(rows_of({"delay": 1}, {"delay": 2})))
    assert compiled([Filter(filter=condition)], place())(flow).flow is flow


def test_what_nobody_reads_is_not_decoded() -> None:
    sifted = sift([Filter(filter="key = 'k'::blob")], rows_of(b"nonsense", None))
    assert (values_of(sifted), len(sifted.rejected)) == ([b"nonsense", None], 0)


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        ([Filter(filter="count > 1")], [b"3", None]),
        ([Filter(filter="key = 'x'::blob")], []),
        ([Filter(filter="window_end > 10")], [b"3", b"1", None]),
        ([Require(require="count > 1", reason="few")], [b"3", None]),
        ([WithColumns(with_columns={"n": "count + 1"})], [b'{"count":3,"n":4}', b'{"count":1,"n":2}', None]),
        ([Select(select={"n": "octet_length(key)"})], [b'{"n":1}', b'{"n":1}', None]),
        ([Select(select={"n": "count"}), Filter(filter="n > 1")], [b'{"n":3}', None]),
        ([Select(select={"n": "count"}), Require(require="n > 1", reason="few")], [b'{"n":3}', None]),
    ],
)
def test_what_takes_back_a_result_passes_steps_that_read_the_value(
    steps: list[Stateless], values: list[bytes | None]
) -> None:
    """Two sessions became one: the null says that the result of one of them is none any more."""
    windows = np.zeros(3, np.int64), np.full(3, 20, np.int64)
    flow = Flow.of_input(replace(Records.from_rows(rows_of(b"3", b"1", None)), window=windows))
    sifted = compiled(steps, Place(key="bytes", values=COUNTS, windows="headers"))(flow)
    assert values_of(sifted) == values


def test_what_takes_back_a_result_is_a_null_in_every_format() -> None:
    windowed = Place(key="bytes", values=COUNTS, windows="headers")
    rows = replace(Records.from_rows(rows_of(b"3", None)), window=(np.zeros(2, np.int64), np.full(2, 20)))
    written = encoding(Encode(encode="int64"), windowed)(Flow.of_input(rows))
    assert values_of(written) == [struct.pack(">q", 3), None]


def test_a_field_named_like_a_column_is_not_read_where_no_step_reads_it() -> None:
    at = place(Values.of_fields(schema_of({"Timestamp": "int64", "KEY": "int64"})))
    for step in (Filter(filter="1 = 1"), Select(select={"n": "1"})):
        sifted = sift([step], rows_of({"Timestamp": "x", "KEY": 1}), at)
        assert (len(values_of(sifted)), len(sifted.rejected)) == (1, 0)


def test_of_a_record_in_a_value_only_the_fields_that_expressions_name_are_read() -> None:
    values = Values.of_fields(schema_of({"weather": {"gust": "float64", "at": {"place": "string", "n": "int64"}}}))
    given_rows = rows_of(
        {"weather": {"gust": 50, "at": 7}},
        {"weather": {"gust": 50, "at": {"place": "JFK", "n": "x"}}},
        {"weather": {"gust": "x", "at": {"place": "JFK"}}},
    )
    one = sift([Filter(filter="weather.gust > 40")], given_rows, place(values))
    assert (len(values_of(one)), one.rejected.tolist()) == (2, [2])
    other = sift([Filter(filter="weather.at.place = 'JFK'")], given_rows, place(values))
    assert (len(values_of(other)), other.rejected.tolist()) == (2, [0])
    whole = sift([Filter(filter="weather is not null")], given_rows, place(values))
    assert whole.rejected.tolist() == [0, 1, 2]


def test_a_row_that_an_earlier_step_dropped_is_not_rejected_by_a_later_one() -> None:
    steps = [Filter(filter="timestamp > 10"), Require(require="delay > 0", reason="on time")]
    sifted = sift(steps, rows_of(b"nonsense", {"delay": 0}, {"delay": 1}))
    assert (sifted.filtered, sifted.rejected.tolist(), sifted.causes) == (1, [1], ("on time",))
    assert [row.time_only for row in sifted.flow.rows.rows()] == [True, False]


def test_a_row_that_cannot_be_evaluated_is_rejected_and_the_others_go_on() -> None:
    steps = [WithColumns(with_columns={"number": 'CAST("to".city AS bigint)'}), Filter(filter="number > 1")]
    values = [{"to": {"city": each}} for each in ("1", "JFK", "2")]
    sifted = sift(steps, rows_of(*values, b"[]", None))
    assert [json.loads(each or b"")["number"] for each in values_of(sifted)] == [2]
    assert dict(zip(sifted.rejected.tolist(), sifted.causes, strict=True)) == {
        1: 'cannot be evaluated: CAST("to".city AS bigint)',
        3: "value: not a JSON object",
        4: "value: null",
    }


def test_changed_values_are_objects_of_the_known_fields() -> None:
    given = {"delay": 2**63 - 1, "gust": 0.1, "to": {"city": 'é"'}, "tags": [1, {"a": None}], "other": 1}
    [value] = values_of(sift([WithColumns(with_columns={"late": "delay > 15", "gust": "gust * 2"})], rows_of(given)))
    del given["other"]
    assert json.loads(value or b"") == given | {"gust": 0.2, "late": True}
    assert list(json.loads(value or b"")) == ["delay", "gust", "to", "tags", "late"]


def test_a_field_of_json_that_no_expression_makes_loses_no_digit() -> None:
    given = b'{"delay":1,"tags":[1234567890.123456789012345678,1e400, 1.50]}'
    [value] = values_of(sift([WithColumns(with_columns={"late": "delay > 15"})], rows_of(given)))
    assert (value or b"").endswith(b'"tags":[1234567890.123456789012345678,1e400, 1.50],"late":false}')


def test_a_float_that_is_not_finite_passes_as_spark_writes_it_unless_an_expression_computes_it() -> None:
    floats = ["NaN", "Infinity", "-Infinity", 0.5]
    passing = {"untouched": {"late": "delay > 15"}, "renamed": {"gust": "GUST"}, "twice": {"wind": '"gust"'}}
    for columns in passing.values():
        chain = [WithColumns(with_columns=columns), Filter(filter="gust IS NOT NULL")]
        found = values_of(sift(chain, rows_of(*({"gust": each} for each in floats))))
        assert [json.loads(each or b"")["gust"] for each in found] == floats
    for chain in (
        [WithColumns(with_columns={"gust": "gust + 0"})],
        [WithColumns(with_columns={"more": "gust * 1"}), Select(select={"gust": "more"})],
    ):
        sifted = sift(chain, rows_of(*({"gust": each} for each in floats)))
        assert [json.loads(each or b"")["gust"] for each in values_of(sifted)] == [0.5]
        assert sifted.causes == ("its values cannot be written as JSON",) * 3


def test_a_filter_reads_floats_that_are_not_finite() -> None:
    found = values_of(sift([Filter(filter="gust > 1")], rows_of(*({"gust": each} for each in ("NaN", "-Infinity", 2)))))
    assert [json.loads(each or b"")["gust"] for each in found] == ["NaN", 2]


def test_select_leaves_the_named_fields_alone() -> None:
    steps = [Select(select={"delay": "delay + 1", "who": "hex(key)", "tags": "tags"})]
    [value] = values_of(sift(steps, rows_of({"delay": 1, "tags": "[1]"})))
    assert json.loads(value or b"") == {"delay": 2, "who": "6B", "tags": '"[1]"'}


def test_a_number_that_json_does_not_have_is_rejected() -> None:
    sifted = sift([WithColumns(with_columns={"root": "gust / delay"})], rows_of({"gust": 1, "delay": 0}, {"gust": 1}))
    assert [json.loads(each or b"")["root"] for each in values_of(sifted)] == [None]
    assert sifted.causes == ("its values cannot be written as JSON",)
    overflow = sift([WithColumns(with_columns={"gust": "gust * 1e308"})], rows_of({"gust": 10}))
    assert (values_of(overflow), len(overflow.causes)) == ([], 1)


def test_a_later_step_reads_what_an_earlier_one_made() -> None:
    steps = [
        WithColumns(with_columns={"delay": "delay * 2"}),
        WithColumns(with_columns={"late": "delay > 15"}),
        Filter(filter="late"),
        Select(select={"twice": "delay"}),
        Filter(filter="twice < 30"),
    ]
    sifted = sift(steps, rows_of(*({"delay": each} for each in (5, 10, 20))))
    assert values_of(sifted) == [b'{"twice":20}']


def test_behind_a_selection_keys_and_times_can_still_be_read_and_other_fields_cannot() -> None:
    steps = [
        Select(select={"n": "delay"}),
        Filter(filter="key = 'k'::blob AND timestamp > 10"),
        WithColumns(with_columns={"at": "timestamp"}),
    ]
    assert values_of(sift(steps, rows_of({"delay": 1}, {"delay": 2}))) == [b'{"n":2,"at":11}']


def test_a_field_hides_a_column_whose_name_differs_only_in_upper_and_lower_case() -> None:
    steps = [Filter(filter="key = 'k'::blob"), WithColumns(with_columns={"KEY": "delay", "Timestamp": "delay * 100"})]
    [value] = values_of(sift([*steps, Filter(filter="KEY > 0")], rows_of({"delay": 3})))
    made = json.loads(value or b"")
    assert (made["KEY"], made["Timestamp"]) == (3, 300)


def test_records_of_the_input_with_windows_can_be_filtered_before_an_operator_reads_the_windows() -> None:
    windowed = Place(key="string", values=FLIGHTS, windows="headers", is_input=True)
    assert len(values_of(sift([Filter(filter="key = 'k'")], rows_of(b"1", b"2"), windowed))) == 2


def test_a_bare_value_is_a_column_of_its_own_name() -> None:
    sifted = sift([Filter(filter="count < 3")], rows_of(2, 3, b"x", 1), place(COUNTS))
    assert (values_of(sifted), sifted.causes) == ([b"2", b"1"], ("value: not JSON",))


@pytest.mark.parametrize(
    ("type", "key", "expression"),
    [
        ("int16", (-2).to_bytes(2, "big", signed=True), "key = -2"),
        ("int32", (70_000).to_bytes(4, "big"), "key = 70000"),
        ("int64", (-(2**62)).to_bytes(8, "big", signed=True), "key = -(2**62)::bigint"),
        ("float32", struct.pack(">f", 0.5), "key = 0.5"),
        ("float64", struct.pack(">d", 0.1), "key = 0.1::double"),
        ("uuid", str(UUID(int=10)).upper().encode(), f"key = '{UUID(int=10)}'"),
        ("string", "Zürich".encode(), "key = 'Zürich'"),
        ("bytes", b"\xff", "key = '\\xff'::blob"),
    ],
)
def test_keys_are_read_in_kafka_s_formats(type: Primitive, key: bytes, expression: str) -> None:
    rows = [*rows_of({}, key=key), *rows_of({}, key=None)]
    sifted = sift([Filter(filter=expression)], rows, place(key=type))
    assert (len(values_of(sifted)), sifted.filtered, len(sifted.rejected)) == (1, 1, 0)


@pytest.mark.parametrize("type", ["int16", "int32", "int64", "float32", "float64", "string", "uuid"])
def test_a_key_of_another_type_is_rejected_where_it_is_read(type: Primitive) -> None:
    rows = rows_of({}, key=b"\xff\xfe\xfd")
    assert sift([Filter(filter="true")], rows, place(key=type)).causes == ()
    [cause] = sift([Filter(filter="key is not null")], rows, place(key=type)).causes
    assert cause.startswith("key: no")


def test_values_of_kafka_s_serializers_are_the_column_value_and_leave_byte_for_byte() -> None:
    numbers = [struct.pack(">q", number) for number in (-5, 3, 9)]
    at = place(Values.of_primitive("int64"))
    sifted = sift([Filter(filter="value > 0")], rows_of(*numbers, b"12", None), at)
    assert (values_of(sifted), sifted.filtered, sifted.causes) == (numbers[1:], 2, ("value: not int64",))
    assert values_of(sift([Select(select={"n": "value + 1"})], rows_of(numbers[0]), at)) == [b'{"n":-4}']


def test_encode_writes_the_only_field_and_rejects_what_does_not_fit() -> None:
    rows = rows_of({"delay": 5}, {"delay": None}, {"delay": 40_000}, b"[]")
    steps = encoding(Encode(encode="int16"), place(Values.of_fields(schema_of({"delay": "int64"}))))
    sifted = steps(Flow.of_input(Records.from_rows(rows)))
    assert values_of(sifted) == [struct.pack(">h", 5), None]
    assert sifted.causes == ("its value is no int16", "value: not a JSON object")


def test_encode_writes_a_decimal_as_the_nearest_double() -> None:
    at = place(Values.of_fields(schema_of({"price": "decimal(38,18)"})))
    rows = Records.from_rows(rows_of(b'{"price": 0.1}', b'{"price": null}', b'{"price": 12345678901234567890.1}'))
    sifted = encoding(Encode(encode="float64"), at)(Flow.of_input(rows))
    assert values_of(sifted) == [struct.pack(">d", 0.1), None, struct.pack(">d", 12345678901234567890.1)]


def test_steps_compute_with_every_digit_of_a_decimal() -> None:
    at = place(Values.of_fields(schema_of({"price": "decimal(20,4)", "day": "date"})))
    steps = [Filter(filter="day >= '2013-01-02'"), WithColumns(with_columns={"price": "price + 0.0001"})]
    given_rows = rows_of(
        b'{"price": 1234567890123456.7890, "day": "2013-01-02"}',
        b'{"price": 1, "day": "2013-01-01"}',
        b'{"price": 1, "day": "soon"}',
    )
    sifted = sift(steps, given_rows, at)
    assert values_of(sifted) == [b'{"price":1234567890123456.7891,"day":"2013-01-02"}']
    assert (sifted.filtered, sifted.causes) == (1, ("value: day is no date32[day]",))


def test_a_count_is_written_as_kafka_s_long() -> None:
    sifted = encoding(Encode(encode="int64"), place(COUNTS))(Flow.of_input(Records.from_rows(rows_of(7))))
    assert values_of(sifted) == [struct.pack(">q", 7)]


def test_a_mark_passes_and_is_never_evaluated() -> None:
    rows = [*rows_of({"delay": 20}), Row(None, None, 99, 1, time_only=True)]
    sifted = sift([Require(require="delay > 15", reason="early")], rows)
    assert ([row.timestamp for row in sifted.flow.rows.rows()], len(sifted.rejected)) == ([10, 99], 0)


def test_a_batch_of_records_that_cannot_be_read_is_left_to_the_operator() -> None:
    records = Records.from_rows(rows_of({"delay": 1}, b"offsets"))
    flow = Flow.of_input(_unreadable(records, 1))
    sifted = compiled([Filter(filter="delay > 15")], place())(flow)
    assert (sifted.filtered, len(sifted.rejected), sifted.flow.is_record.tolist()) == (1, 0, [False, True])


def _unreadable(records: Records, row: int) -> Records:
    from dataclasses import replace

    codes = np.zeros(len(records), np.int8)
    codes[row] = 1
    return replace(records, unreadable=codes)


class Expected(NamedTuple):
    """What a chain makes of one value, by plain Python."""

    value: dict[str, Any] | None = None
    cause: str | None = None


def expected(value: dict[str, Any], step: int, kind: str) -> Expected:
    number = value.get("delay")
    if kind == "filter":
        return Expected(value) if number is not None and number > step else Expected()
    if kind == "require":
        return Expected(value) if number is not None and number > step else Expected(cause=f"r{step}")
    return Expected(value | {"delay": None if number is None else number + step, "gust": None})


KINDS: dict[str, Any] = {
    "filter": lambda step: Filter(filter=f"delay > {step}"),
    "require": lambda step: Require(require=f"delay > {step}", reason=f"r{step}"),
    "add": lambda step: WithColumns(with_columns={"delay": f"delay + {step}", "gust": "NULL::double"}),
}
CHAINS = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(-3, 3)), min_size=1, max_size=5)
VALUES = st.lists(st.fixed_dictionaries({}, optional={"delay": st.none() | st.integers(-5, 5)}), max_size=8)


@many
@given(chain=CHAINS, values=VALUES, cut=st.integers(0, 8))
def test_any_chain_equals_one_step_after_the_other_on_one_row_after_the_other(
    chain: list[tuple[str, int]], values: list[dict[str, Any]], cut: int
) -> None:
    function = compiled([KINDS[kind](step) for kind, step in chain], place())
    rows = rows_of(*values)
    parts = [function(Flow.of_input(Records.from_rows(part))) for part in (rows[:cut], rows[cut:])]
    found = [_delay(value) for part in parts for value in values_of(part)]
    causes = [cause for part in parts for cause in part.causes]
    assert (found, causes) == _by_the_row(chain, values)


def _delay(value: bytes | None) -> int | None:
    return json.loads(value or b"").get("delay")  # type: ignore[no-any-return]


def _by_the_row(chain: list[tuple[str, int]], values: list[dict[str, Any]]) -> tuple[list[int | None], list[str]]:
    left, causes = [], []
    for value in values:
        state = Expected(value)
        for kind, step in chain:
            if state.value is not None:
                state = expected(state.value, step, kind)
        left += [] if state.value is None else [state.value.get("delay")]
        causes += [] if state.cause is None else [state.cause]
    return left, causes


# ---- damaged values that a step reads and writes

_TYPES = {"n": ["null", "long"], "f": "double", "text": "string"}
_RECORD = {"type": "record", "name": "R", "fields": [{"name": name, "type": _TYPES[name]} for name in _TYPES]}
_MESSAGE = 'syntax = "proto3"; message R { optional int64 n = 1; double f = 2; string text = 3; }'
_FIELDS = pa.schema({"n": pa.int64(), "f": pa.float64(), "text": pa.string()})
_VALUE = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(allow_nan=False, allow_infinity=False),
        "text": st.text(max_size=5),
    }
)


class Format(NamedTuple):
    """A format of values: what a pipeline knows of them, and how others write and read them."""

    values: Values
    write: Callable[[dict[str, Any]], bytes]
    read: Callable[[bytes], Any]


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Format]:
    folder = tmp_path_factory.mktemp("schemas")
    text = json.dumps(_RECORD)
    (folder / "17.avsc").write_text(text)
    (folder / "17.proto").write_text(_MESSAGE)
    made = protobuf.message_class(_MESSAGE)
    return {
        "json": Format(Values.of_fields(_FIELDS), lambda row: json.dumps(row).encode(), json.loads),
        "avro": Format(
            Values("avro", _FIELDS, Avro(text, str(folder))),
            lambda row: avro.written(_RECORD, row),
            lambda value: avro.read_by_oracle(value, _RECORD),
        ),
        "protobuf": Format(
            Values("protobuf", _FIELDS, Protobuf(_MESSAGE, "R", str(folder))),
            lambda row: protobuf.in_wire_format(made(**row).SerializeToString()),
            lambda value: protobuf.read_by_oracle(_MESSAGE, value[6:]),
        ),
    }


@pytest.mark.parametrize(("form", "prefix"), [("json", 0), ("avro", 5), ("protobuf", 6)])
@given(rows=st.lists(_VALUE, min_size=1, max_size=4), dice=st.randoms())
def test_what_is_written_of_a_damaged_value_is_what_another_reader_reads_of_it(
    formats: dict[str, Format], form: str, prefix: int, rows: list[dict[str, Any]], dice: Random
) -> None:
    values, write, read = formats[form]
    whole = [write(row) for row in rows]
    given_values = [*whole, *(damaged(value, dice, first=prefix) for value in whole)]
    sifted = sift([WithColumns(with_columns={"m": "coalesce(n, 0) % 7"})], rows_of(*given_values), place(values))
    assert not set(sifted.rejected.tolist()) & set(range(len(whole)))
    kept = [value for at, value in enumerate(given_values) if at not in sifted.rejected]
    for value, found in zip(kept, values_of(sifted), strict=True):
        expected = read(value)
        row = {name: expected.get(name) for name in _FIELDS.names}
        n, f = row["n"] or 0, row["f"]
        m = abs(n) % 7 * (1 if n > 0 else -1)  # of the sign of n, as in SQL
        assert found is not None
        made = json.loads(found)
        made["f"] = None if made["f"] is None else float(made["f"])  # one that is not finite is text
        assert repr(made) == repr(row | {"f": None if f is None else float(f), "m": m})  # nan is not itself
