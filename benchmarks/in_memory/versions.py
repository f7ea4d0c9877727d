"""The speed of a table's lookups, writes and restores on one core.

Lookups: one million, at random times and keys, in 1 million versions of 100,000 keys. Writes: the whole step of a
table, in batches of 200,000 records that are up to 5 s out of order. Restores: a state of 10 million versions from
changelog rows in memory. Values have 50 bytes.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.config.base import read
from tidegate.contracts.records import Bytes, Int64s, Records
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.version_chains import LookupScratch, as_of_many
from tidegate.operators.registry import operator_for
from tidegate.operators.result_tables import changes_schema
from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.table_history.state import TableHistoryState

KEYS, VERSIONS, LOOKUPS, MANY = 100_000, 1_000_000, 1_000_000, 10_000_000
BATCH, PART, VALUE_WIDTH = 200_000, 500_000, 50
FIRST_TIMESTAMP, RECORDS_PER_MS = 1_700_000_000_000, 10
SHORT, LONG = 7, 16
"""Bytes of a key: a short key is identified by its fingerprint alone."""

KEPT = {"lookups": "365d", "step": "60s"}


def measure(say: Any) -> dict[str, float]:
    """Return lookups and records per second (medians of 5 runs after one warm-up run), and seconds of a restore."""
    figures = {}
    for width, name in ((SHORT, "lookups_per_s"), (LONG, "lookups_by_16_bytes_per_s")):
        state = restored(VERSIONS, width)
        figures[name] = LOOKUPS / median([_look_up(state, width, seed) for seed in range(6)][1:])
        say(f"{name}: {figures[name]:,.0f}")
    records = load(4 * VERSIONS, SHORT)
    figures["step_records_per_s"] = len(records) / median([_step(records) for _ in range(6)][1:])
    began = time.perf_counter()
    spent = -_making(MANY, LONG)
    restored(MANY, LONG)
    figures["restore_s"] = time.perf_counter() - began + spent
    return figures


def load(records: int, width: int, first: int = 0) -> Records:
    """Return records of random keys, up to 5 s out of order."""
    rng = np.random.default_rng(first)
    place = np.arange(first, first + records, dtype=np.int64)
    timestamp = FIRST_TIMESTAMP + place // RECORDS_PER_MS - rng.integers(0, 5_000, records)
    size = width + VALUE_WIDTH
    data = np.full((records, size), ord("v"), np.uint8)
    data[:, :width] = keys_of(rng.integers(0, KEYS, records), width)
    start = np.arange(records, dtype=np.int64) * size
    return Records(
        data=data.ravel(),
        offset=place,
        timestamp=timestamp,
        key_start=start,
        key_length=np.full(records, width, np.int64),
        value_start=start + width,
        value_length=np.full(records, VALUE_WIDTH, np.int64),
        headers_start=start,
        headers_length=np.zeros(records, np.int64),
    )


def keys_of(numbers: Int64s, width: int) -> Bytes:
    """Return keys of that width: k, zeros and the number."""
    keys = np.full((len(numbers), width), ord("0"), np.uint8)
    keys[:, 0] = ord("k")
    for digit in range(6):
        keys[:, width - 1 - digit] += (numbers // 10**digit % 10).astype(np.uint8)
    return keys


def rows_of(records: Records) -> pa.Table:
    """Return the records as changelog rows."""
    rows = len(records)
    content = records.data.reshape(rows, -1)
    width = int(records.key_length[0])
    parts = {"key": content[:, :width], "value": content[:, width:]}
    columns = {name: _fixed(np.ascontiguousarray(part)) for name, part in parts.items()}
    return pa.table(
        {"op": pa.repeat(pa.scalar("put"), rows)}
        | columns
        | {"headers": pa.nulls(rows, pa.binary()), "timestamp": records.timestamp, "offset": records.offset},
        changes_schema(),
    )


def _fixed(content: Bytes) -> pa.Array:
    rows, width = content.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def new_state(retention: str) -> TableHistoryState:
    """Return an empty table."""
    raw = {"kind": "table_history", "input": "in", "history_retention": retention}
    operator = operator_for(read(TableHistoryConfig, raw))
    state = operator.open(MemoryStorage(operator.layout))
    assert isinstance(state, TableHistoryState)
    return state


def restored(versions: int, width: int) -> TableHistoryState:
    """Return a table of that many versions, restored from changelog rows."""
    state = new_state(KEPT["lookups"])
    for first in range(0, versions, PART):
        state.restore(rows_of(load(PART, width, first)), FIRST_TIMESTAMP + first + PART)
    return state


def _making(versions: int, width: int) -> float:
    """Return the seconds that creating the rows takes, to subtract them."""
    began = time.perf_counter()
    for first in range(0, versions, PART):
        rows_of(load(PART, width, first))
    return time.perf_counter() - began


def _look_up(state: TableHistoryState, width: int, seed: int) -> float:
    """Return the seconds for all lookups."""
    rng = np.random.default_rng(seed)
    data = keys_of(rng.integers(0, KEYS, LOOKUPS), width).ravel()
    starts = np.arange(LOOKUPS, dtype=np.int64) * width
    lengths = np.full(LOOKUPS, width, np.int64)
    times = FIRST_TIMESTAMP + rng.integers(0, VERSIONS // RECORDS_PER_MS, LOOKUPS)
    scratch, found = LookupScratch(*np.empty((2, LOOKUPS), np.int64)), np.empty(LOOKUPS, np.int64)
    began = time.perf_counter()
    as_of_many(state.versions, data, starts, lengths, times, scratch, found)
    took = time.perf_counter() - began
    assert (found >= 0).mean() > 0.85
    return took


def _step(records: Records) -> float:
    """Return the seconds for all records, in batches."""
    state = new_state(KEPT["step"])
    began = time.perf_counter()
    for start in range(0, len(records), BATCH):
        state.step(records.slice(start, start + BATCH), 0)
    return time.perf_counter() - began
