"""The windows that an operator's log has, read without a service.

What can be seen are the windows that the committed state holds: those still open, and closed ones for as long as the
operator's `retention` keeps them. Where windows keep their elements, a value is that of the last result.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import UserError
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.slots import live_rows

SLOT = ("partition", "key", "window_start", "window_end")
NO_ELEMENT = -1
"""The arrival of rows that are windows, in logs that have rows of elements, too."""

_ORDER = ("window_start", "key", "window_end", "partition")


class Window(NamedTuple):
    """A window of a key, [start, end) in ms (a session's end is its last timestamp); its value is JSON, unless it is of
    a function that gives something else."""

    key: bytes
    start: int
    end: int
    value: bytes | None
    timestamp: int


class CommittedWindows:
    """The windows of a log, at its newest version or an earlier one. KIP-428's reads, over all partitions."""

    def __init__(self, log: Path, version: int | None = None) -> None:
        rows = OperatorLog.at(log, version).read("state")
        if "phase" not in rows.column_names:
            raise UserError("the log holds no windows", value=log, remedy="name the log of a windowed_aggregation")
        if "opened" in rows.column_names:
            rows = rows.filter(pc.equal(rows["arrival"], NO_ELEMENT))
        self._rows = live_rows(rows, SLOT)

    def fetch(
        self, key: bytes, from_ms: int | None = None, to_ms: int | None = None, *, backward: bool = False
    ) -> list[Window]:
        """The key's windows that start in [from_ms, to_ms], both included; by start, from the newest if `backward`."""
        return self._found([pc.equal(self._rows["key"], key)], from_ms, to_ms, backward)

    def fetch_range(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        *,
        backward: bool = False,
    ) -> list[Window]:
        """The same for all keys of [key_from, key_to], by bytes, both included; a bound left out is open."""
        keys = self._rows["key"]
        bounds = [] if key_from is None else [pc.greater_equal(keys, key_from)]
        bounds += [] if key_to is None else [pc.less_equal(keys, key_to)]
        return self._found(bounds, from_ms, to_ms, backward)

    def fetch_all(
        self, from_ms: int | None = None, to_ms: int | None = None, *, backward: bool = False
    ) -> list[Window]:
        """The same for every key; among equal starts by key."""
        return self._found([], from_ms, to_ms, backward)

    def _found(
        self, conditions: list[pa.ChunkedArray], from_ms: int | None, to_ms: int | None, backward: bool
    ) -> list[Window]:
        starts = self._rows["window_start"]
        conditions = conditions + ([] if from_ms is None else [pc.greater_equal(starts, from_ms)])
        conditions = conditions + ([] if to_ms is None else [pc.less_equal(starts, to_ms)])
        rows = self._rows.filter(reduce(pc.and_, conditions)) if conditions else self._rows
        ordered = rows.sort_by([(column, "ascending") for column in _ORDER])
        columns = (ordered[name].to_pylist() for name in ("key", "window_start", "window_end", "value", "timestamp"))
        found = [Window(*row) for row in zip(*columns, strict=True)]
        return found[::-1] if backward else found
