"""Converts between the keys of records and the keys under which an operator holds them.

With windowed input an operator's key is (window start, window end, record key): it identifies a slot and a changelog
row, and the fingerprint is computed from it. Kernels see it as one byte string. Only the conversions in this module, on
input and on output, know the parts of that string.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.config.key_rules import KeyRules, TimeWindows, Windows
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Array
from tidegate.kernels import window_keys
from tidegate.kernels.columns import int_column
from tidegate.kernels.payloads import FlatRecords
from tidegate.operators import late_and_rejected

WINDOW = ("window_start", "window_end")
"""The columns that identify a windowed key, together with `key`."""


Window = tuple[Array, Array] | None
"""The starts and ends of the windows of rows."""


class Keyed(NamedTuple):
    """Records under the operator's keys, with a window end (plain keys: 0) and a code for each.

    `missing`: 0, or the code in `late_and_rejected` of what the record lacks: a timestamp or a window.
    """

    batch: FlatRecords
    end: Array
    missing: Array


class PlainKeys:
    """Keys without windows: the record's own. With `windows: none`, records that name a window are rejected."""

    columns: tuple[pa.Field, ...] = ()

    def __init__(self, windows: Windows = "ignore") -> None:
        # rule: unexpected-window
        self._refuses = windows == "none"

    def keyed(self, batch: FlatRecords, missing: Array, window: Window = None) -> Keyed:
        """Return the batch as it is, with window ends of 0."""
        if self._refuses and batch.headers_length.any():
            missing = _missing(missing, window_keys.unexpected_windows(batch), batch)
        return Keyed(batch, np.zeros(len(batch.offset), np.int64), missing)

    def key(self, key: bytes, window: tuple[int, int] | None) -> bytes:
        """Return the operator's key as the kernels see it: the record's key. `window` is ignored."""
        return key

    def from_changelog(self, batch: FlatRecords, rows: pa.RecordBatch) -> FlatRecords:
        """Return the records of changelog rows, which are `batch`, under the operator's keys.

        Raise UserError if some rows have windows.
        """
        if _windows(rows):
            raise key_kind_error()
        return batch

    def with_record_keys(self, table: pa.Table) -> pa.Table:
        """Return the table as it is stored and queried: unchanged."""
        return table


class WindowKeys:
    """Keys with windows: `windows` says whether the headers or the last bytes of a record's key name the window."""

    columns = tuple(pa.field(name, pa.int64()) for name in WINDOW)

    def __init__(self, windows: Windows = "headers") -> None:
        self._windows = windows

    def keyed(self, batch: FlatRecords, missing: Array, window: Window = None) -> Keyed:
        """Return the records under windowed keys, with the window ends; `missing` also says why there is no window.

        `window`: the starts and ends, if a step before this one gives them; then neither headers nor keys name them.
        """
        if window is not None:
            bounds = window_keys.Bounds(*window, np.zeros(len(batch.offset), np.int8))
        elif self._windows == "headers":
            bounds = window_keys.bounds_of(batch)
        else:
            size = self._windows.time if isinstance(self._windows, TimeWindows) else None
            batch, bounds = window_keys.split_kafka_keys(batch, size)
        missing = _missing(missing, bounds.code, batch)
        return Keyed(window_keys.with_windows(batch, bounds.start, bounds.end), bounds.end, missing)

    def key(self, key: bytes, window: tuple[int, int] | None) -> bytes:
        """Return the operator's key as the kernels see it: the window's bounds as int64, then the record's key."""
        return np.array(window, np.int64).tobytes() + key

    def from_changelog(self, batch: FlatRecords, rows: pa.RecordBatch) -> FlatRecords:
        """Return the records of changelog rows, which are `batch`, under windowed keys.

        Raise UserError if some rows have no window.
        """
        if _windows(rows) < rows.num_rows:
            raise key_kind_error()
        start, end = (int_column(rows.column(name)) for name in WINDOW)
        return window_keys.with_windows(batch, start, end)

    def with_record_keys(self, table: pa.Table) -> pa.Table:
        """Return the table as it is stored and queried: record keys in `key`, windows in columns of their own."""
        if not table.num_rows:
            return _with_windows(table.schema)
        bounds = window_keys.bounds_in(table["key"])
        table = window_keys.without_windows(table)
        for field, column in zip(self.columns, bounds, strict=True):
            table = table.append_column(field, pa.array(column, pa.int64()))
        return table


Keys = PlainKeys | WindowKeys


def keys_of(config: KeyRules) -> Keys:
    """Return the kind of keys that the configuration asks for."""
    return WindowKeys(config.windows) if config.windowed else PlainKeys(config.windows)


def slot_of(config: KeyRules, *more: str) -> tuple[str, ...]:
    """Return the changelog columns that identify a slot: the key's, then `more` if a key has several slots."""
    return ("key", *(WINDOW if config.windowed else ()), *more)


def _missing(missing: Array, code: Array, batch: FlatRecords) -> Array:
    """Return a code per row: the one of `missing`; where that is 0, the one for the window's `code`, if any.

    A row without a key has no window: an operator rejects it for its key, or passes it on.
    """
    # rule: keyless-has-no-window
    refused = (missing == 0) & (code > 0) & (batch.key_length >= 0)
    return np.where(refused, late_and_rejected.NO_WINDOW - 1 + code, missing).astype(np.int8)


def _windows(rows: pa.RecordBatch) -> int:
    """Return the number of rows with a window."""
    if "window_end" not in rows.schema.names:
        return 0
    return int(rows.num_rows - rows.column("window_end").null_count)


@lru_cache(maxsize=16)  # most batches have such tables
def _with_windows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows: the columns of the schema, then those of windows."""
    return pa.schema([*schema, *WindowKeys.columns]).empty_table()


def key_kind_error() -> UserError:
    """Return the error for state whose keys are windowed and the configuration's are not, or the other way round."""
    return UserError(
        "the held keys have windows and those of the configuration do not, or the other way round",
        remedy="give the operator a new name, or take back the change of `windows`",
    )


def bytes_of_window(config: OperatorRules) -> int:
    """Return the length of the part of an input record's key that names its window; 0 if the key has no such part."""
    windows = getattr(config, "windows", None)
    if isinstance(windows, TimeWindows):
        return 8
    return 16 if windows == "session" else 0
