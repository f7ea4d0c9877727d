"""Records in columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.records import Records, Row

pytestmark = pytest.mark.fast

rows = st.lists(
    st.builds(
        Row,
        key=st.none() | st.binary(max_size=9),
        value=st.none() | st.binary(max_size=9),
        timestamp=st.integers(-1, 2**63 - 1),
        offset=st.integers(0, 2**62),
        headers=st.binary(max_size=9),
        port=st.integers(0, 127),
    ),
    max_size=20,
)


@given(rows)
def test_rows_pass_through_columns_unchanged(given_rows):
    assert Records.from_rows(given_rows).rows() == given_rows


@given(rows, st.integers(0, 20), st.integers(0, 20))
def test_a_slice_has_the_rows_between_its_bounds(given_rows, start, end):
    assert Records.from_rows(given_rows).slice(start, end).rows() == given_rows[start:end]
