"""Calls a joiner: the user's own function over Arrow columns that computes the output values of a join.

`function(stream, table)` takes two record batches of equal length: row i of `stream` was joined with row i of `table`.
`stream` has key, value, headers and timestamp; `table` has value and valid_from, both null where there is no version.
The function returns an array of as many binary values or strings; a null is a tombstone. The value of a row must depend
on that row alone: how rows are cut into batches is not specified, and a replay may cut them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.operators.options import user_functions

Columns = Mapping[str, pa.ChunkedArray]
Function = Callable[[pa.RecordBatch, pa.RecordBatch], pa.Array]


@dataclass(frozen=True)
class Joiner:
    """The function, and its name in the configuration."""

    name: str
    function: Function

    def joined(self, stream: Columns, table: Columns) -> pa.ChunkedArray:
        """Return the function's values for the rows. Raise UserError if it fails or returns no such array."""
        rows = pa.table([*stream.values(), *table.values()], names=[*stream, *(f"table.{name}" for name in table)])
        parts = [self._called(part, list(stream), list(table)) for part in rows.to_batches()]
        return pa.chunked_array(parts, pa.binary())

    def _called(self, rows: pa.RecordBatch, of_stream: list[str], of_table: list[str]) -> pa.Array:
        stream = pa.RecordBatch.from_arrays(rows.columns[: len(of_stream)], names=of_stream)
        table = pa.RecordBatch.from_arrays(rows.columns[len(of_stream) :], names=of_table)
        try:
            values = self.function(stream, table)
        except Exception as error:
            raise self._wrong(f"fails: {type(error).__name__}: {error}") from error
        if not isinstance(values, pa.Array) or not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
            raise self._wrong(f"gives {_described(values)}, not an Arrow array of binary or string")
        if len(values) != len(stream):
            raise self._wrong(f"gives {len(values)} values for {len(stream)} rows")
        return values.cast(pa.binary())

    def _wrong(self, fault: str) -> UserError:
        return user_functions.wrong(self.name, "joiner", fault)


def load(name: str) -> Joiner:
    """Return the joiner with the name `module:function`. Raise UserError if it cannot be loaded."""
    return Joiner(name, user_functions.load(name, "joiner"))


def _described(values: object) -> str:
    return f"an array of {values.type}" if isinstance(values, pa.Array) else type(values).__name__
