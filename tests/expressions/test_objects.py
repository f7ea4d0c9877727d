"""Rows as JSON objects: decimals, dates and times are written exactly, or the row is not written."""

from __future__ import annotations

import json
from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs.exact.exact_strategies import SCHEMA, objects
from tests.kernels.codecs.exact.test_exact_texts import DECODER
from tests.kernels.codecs.test_json_columns import decoded
from tidegate.contracts.values import TYPES, schema_of
from tidegate.expressions.layers import objects_of

pytestmark = pytest.mark.fast

EPOCH = date(1970, 1, 1)
FIRST, END = (date.min - EPOCH).days, (date.max - EPOCH).days + 1
DAY = 86_400_000_000


@given(st.lists(objects, min_size=1, max_size=4))
def test_what_is_written_of_a_row_is_read_as_that_row(rows):
    found = objects_of(pa.RecordBatch.from_pylist(rows, SCHEMA))
    assert not found.failed.any()
    assert decoded(*found.values[0].to_pylist(), decoder=DECODER) == [(row, None) for row in rows]


def test_a_date_or_a_time_outside_of_the_years_1_to_9999_is_not_written():
    for name, number, unit in (
        ("date", pa.int32(), 1),
        ("timestamp", pa.int64(), DAY),
        ("timestamp_ntz", pa.int64(), DAY),
    ):
        days = pa.array([FIRST * unit - 1, FIRST * unit, END * unit - 1, END * unit, None], number)
        inside = pa.StructArray.from_arrays([days.cast(TYPES[name])], ["x"])
        for column in (days.cast(TYPES[name]), inside):
            failed = objects_of(pa.record_batch({"x": column})).failed
            assert failed.tolist() == [True, False, False, True, False]


FIELDS = schema_of({"text": "json", "inside": {"text": "json", "n": "int64"}})
NO_DOUBLE = '[1234567890.123456789012345678, 1e400, -0, 1E2, {"a" : 0.10}]'


def objects_with(text):
    """A row that has the JSON text in both places."""
    return pa.RecordBatch.from_pylist([{"text": text, "inside": {"text": text, "n": None}}], FIELDS)


@given(st.sampled_from([NO_DOUBLE, "18446744073709551616", '"\\ud83d\\ude00 nan, ]"', "null", "true", "{\n}"]))
def test_json_text_in_a_field_is_written_as_it_is(text):
    [value] = objects_of(objects_with(text)).values[0].to_pylist()
    assert value == f'{{"text":{text},"inside":{{"text":{text},"n":null}}}}'.encode()


def test_a_null_among_fields_of_json_text_is_null():
    rows = pa.RecordBatch.from_pylist([{"text": None, "inside": None}], FIELDS)
    assert objects_of(rows).values[0].to_pylist() == [b'{"text":null,"inside":null}']


@pytest.mark.parametrize("text", ["", "[1,]", '{"a":1 ,\n}', "NaN", "[-Infinity]", '1,"n":2', "x", "[1", '"\\"nan'])
def test_text_that_a_function_gives_and_that_is_no_json_is_not_written(text):
    assert objects_of(objects_with(text)).failed.tolist() == [True]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_all_json_that_a_function_gives_is_written(value):
    text = json.dumps(value, ensure_ascii=False)
    assert objects_of(objects_with(text)).values[0].to_pylist() == [
        f'{{"text":{text},"inside":{{"text":{text},"n":null}}}}'.encode()
    ]
