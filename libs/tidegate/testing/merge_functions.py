"""Checks functions that merge values: it must not matter which of them are merged first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.options.reducer import Reducer

MOST_ROWS = 64
"""All triples of the rows are merged: 262,144 of them."""


def check_merge_function(function: Callable[[pa.RecordBatch, pa.RecordBatch], Any], rows: pa.RecordBatch) -> None:
    """Check that the function merges any rows into the same, in every order and grouping, and each pair by itself.

    All pairs and triples of the rows, of which there are 64 at most, are merged. The result must also be the same after
    it was written as JSON, as a window keeps it. Numbers with a fraction are compared to the last bit, so give such
    rows of which the sums are exact. Raise AssertionError with the first rows that make a difference; UserError if the
    function fails or returns what it must not.
    """
    assert 0 < rows.num_rows <= MOST_ROWS, f"give 1 to {MOST_ROWS} rows, not {rows.num_rows}"
    reducer = Reducer(getattr(function, "__qualname__", repr(function)), function, rows.schema)
    left, right = (places.ravel() for places in np.indices((rows.num_rows,) * 2))
    both = reducer.pair(rows.take(left), rows.take(right))
    _compare("in a second call", both, reducer.pair(rows.take(left), rows.take(right)), (left, right))
    alone = [
        reducer.pair(rows.slice(i, 1), rows.slice(j, 1)) for i in range(rows.num_rows) for j in range(rows.num_rows)
    ]
    _compare("alone", both, pa.concat_batches(alone), (left, right))
    _compare("in the other order", both, reducer.pair(rows.take(right), rows.take(left)), (left, right))
    _compare("after they were written as JSON", both, reducer.reread(both), (left, right))
    first, second, third = (places.ravel() for places in np.indices((rows.num_rows,) * 3))
    grouped = reducer.pair(both.take(first * rows.num_rows + second), rows.take(third))
    other = reducer.pair(rows.take(first), both.take(second * rows.num_rows + third))
    _compare("with the last two merged first", grouped, other, (first, second, third))


def _compare(how: str, expected: pa.RecordBatch, found: pa.RecordBatch, places: Sequence[Any]) -> None:
    """Raise AssertionError if rows differ; `places`: of what each was merged."""
    if expected.equals(found):
        return
    pairs = zip(expected.to_pylist(), found.to_pylist(), strict=True)
    at = next(at for at, (one, other) in enumerate(pairs) if one != other)
    rows = ", ".join(str(place[at]) for place in places)
    one, other = (batch.slice(at, 1).to_pylist()[0] for batch in (expected, found))
    raise AssertionError(f"rows {rows} are merged into {one}, and {how} into {other}")
