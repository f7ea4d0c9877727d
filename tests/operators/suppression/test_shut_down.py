"""The check before a bound of `shut_down` in the hardest cases: few keys, small bounds, a short limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.suppression.partitions import config
from tidegate.contracts.records import Row
from tidegate.operators.suppression import Suppression
from tidegate.operators.suppression.cases import suppression_reference
from tidegate.operators.testing.laws import Partition

pytestmark = pytest.mark.fast

configs = st.builds(
    lambda timer, limit, bound, size: config(
        timer=timer, until={"time_limit": f"{limit}ms"}, buffer={bound: size, "when_full": "shut_down"}
    ),
    st.sampled_from(["first_update", "last_update"]),
    st.integers(0, 6),
    st.sampled_from(["max_keys", "max_bytes", "max_bytes"]),
    st.integers(1, 6),
)
rows = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 5), st.integers(0, 12)), min_size=2, max_size=12
)


@given(config=configs, rows=rows)
def test_an_operator_stops_exactly_before_the_record_that_exceeds_the_limit(config, rows) -> None:
    history = [Row(key, b"v" * length, timestamp, at) for at, (key, length, timestamp) in enumerate(rows)]
    assert Partition(Suppression(config), 0).play_all(history, set()) == suppression_reference(config, history, 0)
