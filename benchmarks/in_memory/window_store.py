"""The speed of the window store on one core: 4 million puts in bulk, and as many fetches of what was put.

This is the access pattern of a windowed aggregation: the standard load of `kernel` (10,000 keys of 7 bytes,
up to 5 s out of order) in tumbling windows of 10 s, with a value of 8 bytes per record. Windows are kept for 10
minutes, so that every fetch finds its window. Batches have 200,000 records. Times are CPU seconds, because all work is
in one thread.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.in_memory import kernel
from tidegate import WindowStore

WINDOW_MS = 10_000


def load() -> list[tuple[pa.Array, pa.Array, Any]]:
    """Return the batches: keys, values and window starts."""
    records = kernel.load()
    keys = records.data.reshape(kernel.RECORDS, -1)[:, : kernel.KEY_WIDTH]
    starts = records.timestamp // WINDOW_MS * WINDOW_MS
    values = pa.array([b"12345678"] * kernel.BATCH)
    return [
        (_keys(keys[first : first + kernel.BATCH]), values, starts[first : first + kernel.BATCH])
        for first in range(0, kernel.RECORDS, kernel.BATCH)
    ]


def _keys(texts: Any) -> pa.Array:
    offsets = np.arange(len(texts) + 1, dtype=np.int32) * kernel.KEY_WIDTH
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(texts.tobytes())])


def measure(say: Any) -> dict[str, float]:
    """Return puts, fetches, and both together per second; medians of 5 runs after one warm-up run."""
    batches = load()
    puts, fetches = zip(*(_run(batches) for _ in range(6)), strict=True)
    put, fetch = median(puts[1:]), median(fetches[1:])
    return {
        "puts_per_s": kernel.RECORDS / put,
        "fetches_per_s": kernel.RECORDS / fetch,
        "put_fetch_per_s": 2 * kernel.RECORDS / (put + fetch),
    }


def _run(batches: list[tuple[pa.Array, pa.Array, Any]]) -> tuple[float, float]:
    """Return the CPU seconds for all puts, and for all fetches."""
    store = WindowStore("measured", retention_ms=600_000, window_size_ms=WINDOW_MS)
    began = time.process_time()
    for keys, values, starts in batches:
        store.put_many(keys, values, starts)
    put = time.process_time() - began
    for keys, _, starts in batches:
        assert store.fetch_many(keys, starts).null_count == 0
    return put, time.process_time() - began - put
