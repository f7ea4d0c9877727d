"""What a key is, and where it stands in the order: plain keys by time, windows' keys by the window's end.

May import: numpy, pyarrow, contracts, kernels, operators.refusals.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Array
from tidegate.kernels import window_keys
from tidegate.kernels.columns import int_column
from tidegate.kernels.payloads import Batch
from tidegate.operators import refusals

WINDOW_SLOT = ("key", "window_start", "window_end")
Placed = tuple[Batch, Array, Array]
"""Records, the place of each, and a code for each that says what is missing (0: nothing)."""


class PlainKeys:
    """A key is the record's, and its place a timestamp."""

    late = "older than max_lateness"

    def __init__(self, max_lateness: int) -> None:
        self.bound = max_lateness

    def placed(self, batch: Batch, undecodable: Array) -> Placed:
        """The records of a batch."""
        return batch, batch.timestamp, undecodable

    def replayed(self, batch: Batch, rows: pa.RecordBatch) -> Batch:
        """The records of changelog rows. Raises UserError for rows of windows."""
        if _windows(rows):
            raise other_keys()
        return batch

    def rows(self, table: pa.Table) -> pa.Table:
        """The table as people read it."""
        return table

    def change_rows(self, table: pa.Table) -> pa.Table:
        """The changelog's table as it is stored."""
        return table


class WindowKeys:
    """A key is the record's in the window that its headers name, and its place the window's end."""

    late = "its window is closed"

    def __init__(self, grace: int) -> None:
        self.bound = grace

    def placed(self, batch: Batch, undecodable: Array) -> Placed:
        """The records of a batch."""
        start, end, code = window_keys.bounds_of(batch)
        missing = np.where((undecodable == 0) & (code > 0), refusals.NO_WINDOW - 1 + code, undecodable)
        return window_keys.with_windows(batch, start, end), end, missing.astype(np.int8)

    def replayed(self, batch: Batch, rows: pa.RecordBatch) -> Batch:
        """The records of changelog rows. Raises UserError for rows without windows."""
        if _windows(rows) < rows.num_rows:
            raise other_keys()
        start, end = (int_column(rows.column(name)) for name in WINDOW_SLOT[1:])
        return window_keys.with_windows(batch, start, end)

    def rows(self, table: pa.Table) -> pa.Table:
        """The table as people read it."""
        return window_keys.bare(table)

    def change_rows(self, table: pa.Table) -> pa.Table:
        """The changelog's table as it is stored."""
        start, end = window_keys.bounds_in(table["key"])
        bounds = {"window_start": pa.array(start, pa.int64()), "window_end": pa.array(end, pa.int64())}
        table = window_keys.bare(table)
        for name, column in bounds.items():
            table = table.append_column(name, column)
        return table


def _windows(rows: pa.RecordBatch) -> int:
    """How many of the rows are of windows."""
    if "window_end" not in rows.schema.names:
        return 0
    return int(rows.num_rows - rows.column("window_end").null_count)


def other_keys() -> UserError:
    """Windows' keys and plain ones have met."""
    return UserError(
        "what is held has other keys than `until` asks for: windows' keys or plain ones",
        remedy="give the operator a new name, or take back the change of `until`",
    )
