"""Evaluates checked expressions on the columns of a batch, all in one query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.expressions.checking import ROWS, Expression
from tidegate.expressions.engine import engine

EVALUATED = -1


class Evaluated(NamedTuple):
    """The values of the expressions, one column each, and `failed`: per row the first that could not be evaluated.

    That is its place among the expressions; EVALUATED if all could be. The row's values have no meaning otherwise.
    """

    values: list[pa.Array]
    failed: npt.NDArray[np.int64]


def evaluate(expressions: Sequence[Expression], rows: pa.RecordBatch) -> Evaluated:
    """Evaluate the expressions for every row, in order. A row that cannot be evaluated does not stop the others.

    `rows` has the columns that the expressions read, with the types that they were checked for.
    """
    failed = np.full(rows.num_rows, EVALUATED)
    if not expressions or not rows.num_rows:
        return Evaluated([pa.nulls(rows.num_rows, each.type) for each in expressions], failed)
    found = _query(expressions, rows)
    if found.num_rows != rows.num_rows:
        raise AssertionError("an expression has one value per row")
    wrapped = [column.combine_chunks() for column in found.columns]
    for place in reversed(range(len(wrapped))):
        failed[wrapped[place].is_null().to_numpy(zero_copy_only=False)] = place
    return Evaluated([pa.compute.struct_field(column, 0) for column in wrapped], failed)


def is_true(condition: pa.Array) -> npt.NDArray[np.bool_]:
    """Return whether each value is true; null counts as false, as in SQL."""
    chosen: npt.NDArray[np.bool_] = condition.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
    return chosen


def _query(expressions: Sequence[Expression], rows: pa.RecordBatch) -> pa.Table:
    """Return one column per expression, of structs with its value; null where the value could not be computed.

    TRY turns a failure into null; the struct tells that from a value that is null.
    """
    values = ", ".join(f"TRY({{'value': (\n{each.text}\n)}})" for each in expressions)
    connection = engine()
    connection.register(ROWS, pa.Table.from_batches([rows]))
    try:
        return connection.execute(f"SELECT {values} FROM {ROWS}").to_arrow_table()
    finally:
        connection.unregister(ROWS)
