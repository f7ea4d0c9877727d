"""Checks functions over record batches: what they make of a row must depend on that row alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tidegate.operators.options.user_functions import BatchFunction
from tidegate.operators.pipeline.evaluated.checked_function import CheckedFunction
from tidegate.operators.pipeline.rules.steps import ROW, Call


def check_batch_function(function: BatchFunction, rows: pa.RecordBatch, *, may_fail: bool = False) -> None:
    """Check that the function makes the same of each row in every cut of the rows, and in every call.

    The rows are passed all together, again, each alone, and cut in two at every place. Raise AssertionError with the
    first difference: the row, the cut, and what the function made of it; also for a row at which it fails, unless
    `may_fail`: a pipeline rejects such rows. Raise UserError if it returns what it must not.
    """
    checked = CheckedFunction(_call(function, rows), function)
    whole = _made(checked, rows)
    for row, made in enumerate(whole):
        assert may_fail or not isinstance(made, str), f"row {row}: {made}"
    for cut, parts in _cuts(rows.num_rows):
        for start, end in parts:
            found = _made(checked, rows.slice(start, end - start))
            for row, (expected, made) in enumerate(zip(whole[start:end], found, strict=True), start):
                assert expected == made, (
                    f"{function.name} makes something else of row {row} {cut}: {made}, with all rows: {expected}"
                )


def _cuts(count: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    yield "in a second call", [(0, count)]
    yield "alone", [(row, row + 1) for row in range(count)]
    for at in range(1, count):
        yield f"with the rows cut before row {at}", [(0, at), (at, count)]


def _made(function: CheckedFunction, rows: pa.RecordBatch) -> list[Any]:
    """Return per row the values that the function makes of it, {} for one that it chooses; or the cause if it fails."""
    made = function.made(rows)
    values = [{}] * len(made.row) if made.fields is None else made.fields.to_pylist()
    found: list[Any] = [made.causes.get(row, []) for row in range(rows.num_rows)]
    for row, value in zip(made.row.tolist(), values, strict=True):
        found[row].append(value)
    return found


def _call(function: BatchFunction, rows: pa.RecordBatch) -> Call:
    """Return the call that fits the function: one that makes a column `row` beside its fields is for `.flat_map`."""
    if function.emits is None:
        return Call(function.name, "filter", None)
    is_flat = ROW not in function.emits.names and ROW in _columns_made(function, rows)
    return Call(function.name, "flat_map" if is_flat else "map", function.emits)


def _columns_made(function: BatchFunction, rows: pa.RecordBatch) -> list[str]:
    """Return the columns that the function makes of a row at which it does not fail; none if there is no such row."""
    for row in range(rows.num_rows):
        with suppress(Exception):
            return list(function(rows.slice(row, 1)).schema.names)
    return []
