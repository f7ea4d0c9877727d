"""Rows as JSON objects: decimals, dates and times are written exactly, or the row is not written."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs.exact.exact_strategies import SCHEMA, objects
from tests.kernels.codecs.exact.test_exact_texts import DECODER
from tests.kernels.codecs.test_json_columns import decoded
from tidegate.contracts.values import TYPES
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
