"""Comparisons that Arrow evaluates have the results that DuckDB has, and no others are taken for such."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.expressions.checking import check_condition
from tidegate.expressions.evaluation import EVALUATED, evaluate
from tidegate.expressions.layers import Layer, evaluate_layers

pytestmark = pytest.mark.fast

SIGNS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
WIDTHS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("Few", pa.int8()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("w", pa.struct([("n", pa.int64())])),
    ]
)


def near(width: int) -> st.SearchStrategy[int]:
    """Integers of that width, those around its limits and around 0 more often."""
    most = 2 ** (width - 1) - 1
    edges = st.sampled_from([-most - 1, -most, -1, 0, 1, most])
    return edges | st.integers(-most - 1, most)


@st.composite
def compared(draw: st.DrawFn) -> tuple[pa.RecordBatch, str]:
    """A column of integers, null among them, and a comparison of it."""
    width = draw(st.sampled_from(sorted(WIDTHS)))
    values = draw(st.lists(st.none() | near(width), min_size=1, max_size=8))
    sizes = st.sampled_from(sorted(WIDTHS)).flatmap(near)
    number = draw(st.sampled_from([value for value in values if value is not None] or [0]) | sizes)
    rows = pa.record_batch({"n": pa.array(values, WIDTHS[width])})
    return rows, f"n {draw(st.sampled_from(SIGNS))} {number}"


@given(drawn=compared())
def test_a_comparison_by_arrow_has_the_results_of_duckdb(drawn: tuple[pa.RecordBatch, str]) -> None:
    rows, text = drawn
    condition = check_condition(text, rows.schema)
    if condition.comparison is None:
        assert text.endswith(str(-(2**63)))  # DuckDB writes that number with 128 bits
        return
    by_query = evaluate([condition], rows)
    assert by_query.failed.tolist() == [EVALUATED] * rows.num_rows
    assert condition.comparison.of(rows).equals(by_query.values[0])
    [by_layer] = evaluate_layers([Layer({"": condition})], rows).layers
    assert by_layer.values[0].equals(by_query.values[0]) and not by_layer.failed.any()


@pytest.mark.parametrize("text", ["n >= 0", "(n < -3)", "N = 1", '"n" <> 99999999999 -- long', "few <= 300"])
def test_a_comparison_of_an_integer_column_with_an_integer_is_evaluated_by_arrow(text: str) -> None:
    found = check_condition(text, SCHEMA).comparison
    assert found is not None
    assert found.column == ("Few" if "few" in text else "n")


@pytest.mark.parametrize(
    "text",
    [
        "n >= 0.5",
        "x >= 0",
        "s = 'a'",
        "n = '1'",
        "n = null",
        "n > 99999999999999999999",
        "3 < n",
        "n + 1 > 3",
        "n = few",
        "w.n > 3",
        "n > 1 and n < 3",
        "n is distinct from 3",
        "true = true",
    ],
)
def test_other_conditions_are_left_to_duckdb(text: str) -> None:
    assert check_condition(text, SCHEMA).comparison is None
