"""What a key is: the record's own, or the record's in its window.

Where the input is windowed, (start, end, key) is the key: of a slot, of its fingerprint, and of a changelog row. The
kernels see one byte string; only what comes in and what goes out knows that it has parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.config import KeyRules, TimeWindows, Windows
from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Array
from tidegate.kernels import window_keys
from tidegate.kernels.columns import int_column
from tidegate.kernels.payloads import Batch
from tidegate.operators import refusals

WINDOW = ("window_start", "window_end")
"""The columns that, with `key`, identify a windowed key."""


class Keyed(NamedTuple):
    """Records under the operator's keys, the end of each one's window (plain keys: 0), and a code for each that says
    what is missing (0: nothing)."""

    batch: Batch
    end: Array
    missing: Array


class PlainKeys:
    """A key is the record's. `windows`: `none` where a record that names a window is to be refused."""

    columns: tuple[pa.Field, ...] = ()

    def __init__(self, windows: Windows = "ignore") -> None:
        self._refuses = windows == "none"

    def keyed(self, batch: Batch, undecodable: Array) -> Keyed:
        """Return the records of a batch."""
        if self._refuses and batch.headers_length.any():
            undecodable = _missing(undecodable, window_keys.untold(batch))
        return Keyed(batch, np.zeros(len(batch.offset), np.int64), undecodable)

    def key(self, key: bytes, window: tuple[int, int] | None) -> bytes:
        """Return a key's bytes, as the kernels see them."""
        return key

    def replayed(self, batch: Batch, rows: pa.RecordBatch) -> Batch:
        """Return the records of changelog rows. Raises UserError for rows of windows."""
        if _windows(rows):
            raise other_keys()
        return batch

    def shown(self, table: pa.Table) -> pa.Table:
        """Return the table as it is stored and read."""
        return table


class WindowKeys:
    """A key is the record's in the window that its headers or its key's last bytes name, as `windows` says."""

    columns = tuple(pa.field(name, pa.int64()) for name in WINDOW)

    def __init__(self, windows: Windows = "headers") -> None:
        self._windows = windows

    def keyed(self, batch: Batch, undecodable: Array) -> Keyed:
        """Return the records of a batch."""
        if self._windows == "headers":
            bounds = window_keys.bounds_of(batch)
        else:
            size = self._windows.time if isinstance(self._windows, TimeWindows) else None
            batch, bounds = window_keys.split(batch, size)
        missing = _missing(undecodable, np.where(batch.key_length < 0, 0, bounds.code))
        return Keyed(window_keys.with_windows(batch, bounds.start, bounds.end), bounds.end, missing)

    def key(self, key: bytes, window: tuple[int, int] | None) -> bytes:
        """Return a key's bytes, as the kernels see them."""
        return np.array(window, np.int64).tobytes() + key

    def replayed(self, batch: Batch, rows: pa.RecordBatch) -> Batch:
        """Return the records of changelog rows. Raises UserError for rows without windows."""
        if _windows(rows) < rows.num_rows:
            raise other_keys()
        start, end = (int_column(rows.column(name)) for name in WINDOW)
        return window_keys.with_windows(batch, start, end)

    def shown(self, table: pa.Table) -> pa.Table:
        """Return the table as it is stored and read: with the records' own keys, and the windows beside them."""
        bounds = window_keys.bounds_in(table["key"])
        table = window_keys.bare(table)
        for field, column in zip(self.columns, bounds, strict=True):
            table = table.append_column(field, pa.array(column, pa.int64()))
        return table


Keys = PlainKeys | WindowKeys


def keys_of(config: KeyRules) -> Keys:
    """Return what keys are under the configuration."""
    return WindowKeys(config.windows) if config.windowed else PlainKeys(config.windows)


def slot_of(config: KeyRules, *more: str) -> tuple[str, ...]:
    """Return the columns that identify a key's slot in the changelog, with those that tell its slots apart."""
    return ("key", *(WINDOW if config.windowed else ()), *more)


def _missing(undecodable: Array, code: Array) -> Array:
    """Return a code per row that says what is missing: the timestamp, or what `code` says of the window."""
    return np.where((undecodable == 0) & (code > 0), refusals.NO_WINDOW - 1 + code, undecodable).astype(np.int8)


def _windows(rows: pa.RecordBatch) -> int:
    """Return how many of the rows are of windows."""
    if "window_end" not in rows.schema.names:
        return 0
    return int(rows.num_rows - rows.column("window_end").null_count)


def other_keys() -> UserError:
    """Return the error for windows' keys that meet plain ones."""
    return UserError(
        "what is held has other keys than the configuration asks for: windows' keys or plain ones",
        remedy="give the operator a new name, or take back the change of `windows`",
    )
