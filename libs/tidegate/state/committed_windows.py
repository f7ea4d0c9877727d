"""Read windows from an operator's log; no running service is needed.

Only windows in the committed state are visible: open ones, and closed ones for as long as the operator's `retention`
keeps them. For windows that keep their elements, the value is that of the last result.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import UserError
from tidegate.state.delta_log.log_entries import newest_version
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.slots import live_rows

SLOT = ("partition", "key", "window_start", "window_end")
NO_ELEMENT = -1
"""Value of `arrival` in the rows of windows, in logs that also have rows of elements."""

_ORDER = ("window_start", "key", "window_end", "partition")


class Window(NamedTuple):
    """One window of a key, [start, end) in ms; the end of a session is its last timestamp.

    The value is JSON, unless the aggregation function returns something else.
    """

    key: bytes
    start: int
    end: int
    value: bytes | None
    timestamp: int


class CommittedWindows:
    """The windows of the log at that place and version (None: the newest), with KIP-428's reads over all partitions.

    `step`: the step of a pipeline whose windows they are. Raises UserError if there is no log, or if it holds none.
    """

    def __init__(self, log: str | Path | Place, version: int | None = None, step: str = "") -> None:
        lake = open_lake(log if isinstance(log, Place) else Place.of(log))
        if newest_version(lake) is None:
            raise UserError("the operator has no log yet", value=log, remedy="run it: tidegate run")
        rows = LogVersion.at(lake, version).read("state")
        if step:
            rows = rows.filter(pc.equal(rows["step"], step))
        if "phase" not in rows.column_names:
            raise UserError(
                "the log holds no windows",
                value=log,
                remedy="name the log of an operator that aggregates in windows",
            )
        if "opened" in rows.column_names and rows["opened"].null_count < len(rows):
            rows = rows.filter(pc.equal(rows["arrival"], NO_ELEMENT))
        live = live_rows(rows, SLOT)
        self._rows = live.filter(pc.is_valid(live["phase"]))

    def fetch(
        self, key: bytes, from_ms: int | None = None, to_ms: int | None = None, *, backward: bool = False
    ) -> list[Window]:
        """Return the windows of the key that start between `from_ms` and `to_ms`, both inclusive (None: no bound).

        Windows are ordered by start, newest first if `backward`.
        """
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
        """Return the windows of all keys between `key_from` and `key_to`, both inclusive; keys compare as bytes.

        They start between `from_ms` and `to_ms`, both inclusive. None stands for no bound. Windows are ordered by
        start, then key; in reverse if `backward`.
        """
        keys = self._rows["key"]
        bounds = [] if key_from is None else [pc.greater_equal(keys, key_from)]
        bounds += [] if key_to is None else [pc.less_equal(keys, key_to)]
        return self._found(bounds, from_ms, to_ms, backward)

    def fetch_all(
        self, from_ms: int | None = None, to_ms: int | None = None, *, backward: bool = False
    ) -> list[Window]:
        """Return the windows of all keys that start between `from_ms` and `to_ms`, both inclusive (None: no bound).

        Windows are ordered by start, then key; in reverse if `backward`.
        """
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
