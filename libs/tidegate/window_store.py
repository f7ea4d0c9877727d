"""A columnar window store in process memory (KIP-428).

Example:

    store = WindowStore("visits", retention_ms=86_400_000, window_size_ms=3_600_000)
    store.put(b"key", b"3", 7_200_000)
    store.fetch(b"key", 7_200_000)  # b"3"
    [entry.value for entry in store.fetch(b"key", 0, 9_000_000)]  # [b"3"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.contracts.event_time import MAX_TIMESTAMP, NO_STREAM_TIME
from tidegate.contracts.operator import Array, ArraySpec, Layout
from tidegate.contracts.records import Records, Row
from tidegate.kernels import window_store as kernel
from tidegate.kernels.columns import binary_column, record_columns, records_of
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.payloads import FlatRecords, flat_records
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.version_chains import NONE
from tidegate.kernels.window_store import NEEDED, NEXT_ROW, STREAM_TIME, TAKEN
from tidegate.kernels.windows import ARRAYS, CAPACITY, DONE, make_room, windows_of

LAYOUT = Layout(
    kind="window_store",
    version=2,
    arrays=(ArraySpec("numbers", "int64", "fixed", kernel.NUMBERS), *ARRAYS),
    capacity=CAPACITY,
)
_ORDER = [("window_start", "ascending"), ("key", "ascending"), ("inserted", "ascending")]
_NO_DATA = flat_records(Records.from_rows([]))


class Entry(NamedTuple):
    """One window of a key."""

    key: bytes
    window_start: int
    window_end: int
    value: bytes


class WindowStore:
    """Values by key and window start (KIP-428).

    Stream time T is the largest window start of all puts, including rejected and null ones. A window can be written
    while its start > T - write_grace_ms (by default the retention), and can be read while its start > T - retention_ms.
    Expired windows are freed by the put that advances T.

    A null value removes the window. With `retain_duplicates` each put adds a window and null values are ignored; as
    there is no single value then, `fetch` of one time finds nothing. Reads are ordered by start, key bytes and
    insertion, or backward; both ends of a range are included. A read is a snapshot: later puts do not change it.
    """

    def __init__(
        self,
        name: str,
        *,
        retention_ms: int,
        window_size_ms: int,
        write_grace_ms: int | None = None,
        retain_duplicates: bool = False,
    ) -> None:
        grace_ms = retention_ms if write_grace_ms is None else write_grace_ms
        if problems := list(_problems(name, retention_ms, window_size_ms, grace_ms)):
            raise ConfigurationError(problems)
        self.name = name
        self._size_ms = window_size_ms
        self._rules = kernel.Rules(retention_ms, grace_ms, retain_duplicates)
        self._storage = MemoryStorage(LAYOUT)
        self._map()
        self._numbers[STREAM_TIME] = NO_STREAM_TIME

    def __len__(self) -> int:
        return int(self._windows.order.numbers[HELD])

    @property
    def stream_time(self) -> int:
        """Return T; -1 before the first put."""
        return int(self._numbers[STREAM_TIME])

    def put(self, key: bytes, value: bytes | None, window_start: int) -> bool:
        """Set the window's value; return False if the window is too late to be written. T advances either way."""
        return self._put(flat_records(Records.from_rows([Row(_present(key), value, _start(window_start), 0)]))) == 1

    def put_many(self, keys: pa.Array, values: pa.Array, window_starts: Array) -> int:
        """Put each row in turn, as `put` does; return how many were written.

        Raises UserError, before anything is written, for a null key or a negative start.
        """
        _all_present(keys)
        if len(window_starts) and window_starts.min() < 0:
            _start(int(window_starts.min()))
        return self._put(_batch(keys, values, window_starts))

    @overload
    def fetch(self, key: bytes, time: int) -> bytes | None: ...

    @overload
    def fetch(self, key: bytes, time: int, until: int, *, backward: bool = False) -> Iterator[Entry]: ...

    def fetch(
        self, key: bytes, time: int, until: int | None = None, *, backward: bool = False
    ) -> bytes | Iterator[Entry] | None:
        """Return the value of the key's window that starts at `time`; None if there is none.

        With `until`, iterate over the key's windows that start from `time` to `until`.
        """
        batch = flat_records(Records.from_rows([Row(_present(key), None, time, 0)]))
        if until is None:
            value: bytes | None = self._fetch(batch)[0].as_py()
            return value
        return self._entries(self._chain(batch, time, until), backward)

    def fetch_many(self, keys: pa.Array, window_starts: Array) -> pa.ChunkedArray:
        """Return what `fetch` finds for each key and start, as a binary column."""
        _all_present(keys)
        return self._fetch(_batch(keys, pa.nulls(len(keys), pa.binary()), window_starts))

    def fetch_range(
        self, key_from: bytes | None, key_to: bytes | None, time: int, until: int, *, backward: bool = False
    ) -> Iterator[Entry]:
        """Iterate over the windows that start from `time` to `until`, of keys from `key_from` to `key_to`.

        None as a key sets no bound.
        """
        return self._entries(self._starting_within(time, until), backward, key_from, key_to)

    def fetch_all(self, time: int, until: int, *, backward: bool = False) -> Iterator[Entry]:
        """Iterate over the windows of all keys with a start from `time` to `until`."""
        return self._entries(self._starting_within(time, until), backward)

    def all(self, *, backward: bool = False) -> Iterator[Entry]:
        """Iterate over all windows."""
        return self._entries(self._starting_within(0, MAX_TIMESTAMP), backward)

    def _put(self, batch: FlatRecords) -> int:
        self._numbers[NEXT_ROW] = self._numbers[TAKEN] = 0
        while (signal := kernel.put_many(self._windows, self._numbers, batch, self._rules)) != DONE:
            make_room(self._storage, self._windows, signal, int(self._numbers[NEEDED]))
            self._map()
        return int(self._numbers[TAKEN])

    def _map(self) -> None:
        """Map the storage's current arrays for the kernels."""
        arrays = self._storage.arrays()
        self._numbers, self._windows = arrays["numbers"], windows_of(arrays)

    def _fetch(self, batch: FlatRecords) -> pa.ChunkedArray:
        count = len(batch.timestamp)
        starts, lengths = np.zeros(count, np.int64), np.full(count, -1)
        if not self._rules.retain_duplicates:
            kernel.fetch_many(self._windows, batch, starts, lengths)
        return binary_column(batch.data, self._windows.versions.payloads.arena.data, starts, lengths)

    def _chain(self, batch: FlatRecords, first: int, last: int) -> Array:
        """Return the slots of the key's windows that start from `first` to `last`."""
        found = np.zeros(3, np.int64)
        kernel.first_and_end(self._windows, batch, max(first, 0), last, found)
        chosen = np.empty(max(0, int(found[2] - found[1])) if found[0] != NONE else 0, np.int64)
        kernel.entries_of(self._windows, int(found[0]), int(found[1]), chosen)
        return chosen

    def _starting_within(self, first: int, last: int) -> Array:
        """Return the slots of all windows that start from `first` to `last`."""
        order = self._windows.order
        held = order.numbers[HELD]
        place = order.place[:held]
        return order.heap[:held][(first <= place) & (place <= last)]

    def _entries(
        self, chosen: Array, backward: bool, key_from: bytes | None = None, key_to: bytes | None = None
    ) -> Iterator[Entry]:
        """Copy those windows whose keys are within the bounds, and iterate over the copy in order."""
        columns = record_columns(self._windows.versions.payloads, _NO_DATA, ~chosen.astype(np.int64))
        rows = pa.table(
            {
                "key": columns["key"],
                "value": columns["value"],
                "window_start": columns["timestamp"],
                "inserted": self._windows.order.arrival[chosen],
            }
        )
        for bound, within in ((key_from, pc.greater_equal), (key_to, pc.less_equal)):
            if bound is not None:
                rows = rows.filter(within(rows["key"], bound))
        rows = rows.sort_by([(name, "descending" if backward else order) for name, order in _ORDER])
        return self._iterate(rows)

    def _iterate(self, rows: pa.Table) -> Iterator[Entry]:
        for part in rows.to_batches():
            columns = (part[name].to_pylist() for name in ("key", "window_start", "value"))
            for key, start, value in zip(*columns, strict=True):
                yield Entry(key, start, min(start + self._size_ms, MAX_TIMESTAMP), value)


def _problems(name: object, retention_ms: int, window_size_ms: int, grace_ms: int) -> Iterator[Problem]:
    if not isinstance(name, str):
        yield Problem(where="name", value=name, cause="a store without a name", remedy="give a text")
    for where, value in (
        ("retention_ms", retention_ms),
        ("window_size_ms", window_size_ms),
        ("write_grace_ms", grace_ms),
    ):
        if not isinstance(value, int) or not 0 <= value <= MAX_TIMESTAMP:
            yield Problem(where=where, value=value, cause="not a duration", remedy="give milliseconds, 0 or more")
            return
    if retention_ms < window_size_ms:
        cause = f"windows of {window_size_ms} ms would expire before they end"
        yield Problem(where="retention_ms", value=retention_ms, cause=cause, remedy="retain at least the window size")
    if grace_ms > retention_ms:
        cause = f"windows that expire after {retention_ms} ms cannot be written for longer"
        yield Problem(where="write_grace_ms", value=grace_ms, cause=cause, remedy="raise retention_ms, or lower it")


def _present(key: bytes | None) -> bytes:
    if key is None:
        raise UserError("a window without a key", remedy="give bytes; an empty key is one")
    if not isinstance(key, bytes):
        raise UserError("a key is bytes", value=key, remedy="give bytes, such as b'key'")
    return key


def _start(window_start: int) -> int:
    if not 0 <= window_start <= MAX_TIMESTAMP:
        raise UserError("not the start of a window", value=window_start, remedy="give milliseconds, 0 or more")
    return window_start


def _all_present(keys: pa.Array) -> None:
    if keys.null_count:
        _present(None)


def _batch(keys: pa.Array, values: pa.Array, window_starts: Array) -> FlatRecords:
    times = pa.array(window_starts, pa.int64())
    columns = {"key": keys, "value": values, "headers": pa.nulls(len(keys), pa.binary()), "timestamp": times}
    return flat_records(records_of(pa.record_batch(columns | {"offset": times})))
