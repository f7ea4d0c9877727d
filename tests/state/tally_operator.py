"""An operator made for these tests: it counts records per key, and a null value forgets the key.

Keys are small numbers in decimal: a number is its place in the array.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.operator import SEED, Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import Records

EMPTY = pa.table({"key": pa.array([], pa.binary())})


class MemoryStorage:
    """Arrays in process memory."""

    def __init__(self, layout: Layout) -> None:
        self._layout, self._capacity = layout, dict(layout.capacity)
        self._arrays = self._new()

    def _new(self) -> dict[str, Array]:
        return {s.name: np.zeros(s.factor * self._capacity[s.dimension], s.dtype) for s in self._layout.arrays}

    def arrays(self) -> Mapping[str, Array]:
        return self._arrays

    def capacity(self) -> Mapping[str, int]:
        return self._capacity

    def grow(self, capacity: Mapping[str, int]) -> None:
        before = self._arrays
        self._capacity.update(capacity)
        self._arrays = self._new()
        for name, array in before.items():
            self._arrays[name][: len(array)] = array


class TallyState:
    """counts[key] is the number of records of the key; 0: not held."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def stream_time(self) -> int:
        return int(self._storage.arrays()["time"][0]) - 1

    def step(self, records: Records, clock_ms: int) -> StepResult:
        touched: dict[bytes, int] = {}
        for row in records.rows():
            assert row.key is not None
            count = self._counts(int(row.key))
            touched.setdefault(row.key, int(count[int(row.key)]))
            count[int(row.key)] = 0 if row.value is None else count[int(row.key)] + 1
            self._set_time(max(self.stream_time, row.timestamp))
        return StepResult(
            emissions=EMPTY,
            late=EMPTY,
            rejected=EMPTY,
            changes=self._changes(touched),
            undo=_rows([("put" if before else "delete", int(key), before) for key, before in touched.items()]),
            counts=Counts(records_in=len(records), applied=len(records), held=len(self.snapshot())),
            stream_time=self.stream_time,
        )

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        raise NotImplementedError

    def flush(self) -> StepResult:
        raise NotImplementedError

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        for row in rows.select(["op", "key", "value"]).to_pylist():
            key = int(row["key"])
            self._counts(key)[key] = int(row["value"]) if row["op"] == "put" else 0
        self._set_time(stream_time)

    def snapshot(self) -> pa.Table:
        counts = self._storage.arrays()["counts"]
        return _rows([("put", key, counts[key]) for key in np.flatnonzero(counts)])

    def held(self) -> dict[int, int]:
        """The counts as a dict."""
        counts = self._storage.arrays()["counts"]
        return {int(key): int(counts[key]) for key in np.flatnonzero(counts)}

    def _changes(self, touched: Mapping[bytes, int]) -> pa.Table:
        rows = [("put", key, int(self._counts(int(key))[int(key)])) for key in touched]
        return _rows([("put" if n else "delete", int(k), n) for _, k, n in rows if n or touched[k]])

    def _counts(self, key: int) -> Array:
        if key >= self._storage.capacity()["keys"]:
            self._storage.grow({"keys": 2 * key})
        return self._storage.arrays()["counts"]

    def _set_time(self, stream_time: int) -> None:
        self._storage.arrays()["time"][0] = stream_time + 1


def _rows(rows: list[tuple[str, int, int]]) -> pa.Table:
    return pa.table(
        {
            "op": pa.array([op for op, _, _ in rows], pa.string()),
            "key": pa.array([b"%d" % key for _, key, _ in rows], pa.binary()),
            "value": pa.array([b"%d" % count if count else None for _, _, count in rows], pa.binary()),
        }
    )


class Tally:
    """The operator; a layout with room for four keys, so that growth is met soon."""

    kind = "tally"
    layout = Layout(
        kind="tally",
        version=1,
        arrays=(ArraySpec("counts", "int64", "keys"), ArraySpec("time", "int64", "fixed"), SEED),
        capacity={"keys": 4, "fixed": 1},
    )
    columns: tuple[pa.Field, ...] = ()
    slot = ("key",)

    def damage(self, storage: Storage) -> str | None:
        return "a count cannot be" if storage.arrays()["counts"].min() < 0 else None

    def open(self, storage: Storage) -> TallyState:
        return TallyState(storage)
