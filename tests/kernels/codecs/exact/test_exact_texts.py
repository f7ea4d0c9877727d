"""Decimals, dates and times in JSON objects are read exactly, or their value is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs.exact.exact_strategies import SCHEMA, json_of, objects
from tests.kernels.codecs.test_json_columns import decoded
from tidegate.contracts.values import schema_of
from tidegate.kernels.codecs.json_columns import JsonDecoder

pytestmark = pytest.mark.fast

DECODER = JsonDecoder(SCHEMA)


@given(st.lists(objects, max_size=4))
def test_every_decimal_date_and_time_is_read_as_it_is_written(rows):
    assert decoded(*map(json_of, rows), decoder=DECODER) == [(row, None) for row in rows]


@pytest.mark.parametrize(
    ("type", "text", "same"),
    [
        ("decimal(5,2)", "1e2", "100.00"),
        ("decimal(5,2)", "12", "12.00"),
        ("decimal(5,2)", "12.3400", "12.34"),
        ("decimal(5,2)", "-0", "0.00"),
        ("decimal(38,18)", "1E-18", "0.000000000000000001"),
        ("timestamp", '"2013-01-01T05:15:00+01:00"', '"2013-01-01T04:15:00.000000Z"'),
        ("timestamp", '"2013-01-01 05:15:00.5Z"', '"2013-01-01T05:15:00.500000Z"'),
        ("timestamp_ntz", '"2013-01-01T05:15"', '"2013-01-01T05:15:00.000000"'),
    ],
)
def test_a_value_that_is_written_otherwise_is_the_same(type, text, same):
    decoder = JsonDecoder(schema_of({"x": type}))
    (one, _), (other, reason) = decoded(f'{{"x":{text}}}', f'{{"x": {same}}}', decoder=decoder)
    assert one == other and one["x"] is not None and reason is None


@pytest.mark.parametrize(
    ("type", "texts"),
    [
        ("decimal(5,2)", ["1.255", "1000", "1e400", '"1"', "true", "[1]", "{}"]),
        ("date", ["1", '"2013-1-1"', '"2013-02-30"', '"2013-01-01T00:00:00"', '""', '"12013-01-01"', "[]"]),
        ("timestamp", ["1", '"2013-01-01T00:00:00"', '"2013-01-01T00:00:00.1234567Z"', '"2013-01-01T25:00:00Z"']),
        ("timestamp_ntz", ["1", '"2013-01-01T00:00:00Z"', '"2013-01-01T00:00:00.1234567"', '"now"']),
    ],
)
def test_a_value_that_is_none_of_its_type_is_refused_and_no_other_one_with_it(type, texts):
    schema = schema_of({"before": "int64", "x": type, "inside": {"x": type}})
    decoder = JsonDecoder(schema)
    wrong = [f'{{"before": 1, "x": {text}}}' for text in texts] + [f'{{"inside": {{"x": {text}}}}}' for text in texts]
    found = decoded(
        '{"before": 2}', *wrong, '{"before": "a", "x": 0, "inside": {"x": 0}}', '{"before": 3}', decoder=decoder
    )
    reasons = [f"value: {path} is no {schema.field('x').type}" for path in ("x", "inside.x") for _ in texts]
    assert [reason for _, reason in found] == [None, *reasons, "value: before is no int64", None]
    nothing = dict.fromkeys(schema.names)
    assert [row for row, _ in found] == [
        nothing | {"before": 2},
        *[nothing] * (len(wrong) + 1),
        nothing | {"before": 3},
    ]
