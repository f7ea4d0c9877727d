"""The speed of suppression's kernel on one core: 4 million records, 10,000 keys, 5 s time limit, bound of 100,000 keys.

Batches have 200,000 records, about what a service that is behind reads from a partition at once.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from tidegate.contracts.config.base import read
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.records import Records
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression import step
from tidegate.operators.suppression.config import SuppressionConfig
from tidegate.operators.suppression.step import absorb

RECORDS, KEYS, BATCH, KEY_WIDTH = 4_000_000, 10_000, 200_000, 7
CONFIG = {
    "kind": "suppression",
    "input": "in",
    "until": {"time_limit": "5s"},
    "buffer": {"max_keys": 100_000, "when_full": "emit"},
}


def load(records: int = RECORDS) -> Records:
    """Return the standard load as columns: keys k000000 to k009999, times up to 5 s out of order, 50-byte values."""
    rng = np.random.default_rng(1)
    keys = rng.integers(0, KEYS, records)
    width = KEY_WIDTH + 50
    data = np.full((records, width), ord("v"), np.uint8)
    data[:, 0] = ord("k")
    for digit in range(6):
        data[:, 6 - digit] = ord("0") + keys // 10**digit % 10
    start = np.arange(records, dtype=np.int64) * width
    return Records(
        data=data.ravel(),
        offset=np.arange(records, dtype=np.int64),
        timestamp=1_700_000_000_000 + np.arange(records) // 10 - rng.integers(0, 5_000, records),
        key_start=start,
        key_length=np.full(records, KEY_WIDTH, np.int64),
        value_start=start + KEY_WIDTH,
        value_length=np.full(records, 50, np.int64),
        headers_start=start,
        headers_length=np.zeros(records, np.int64),
    )


def measure(say: Any) -> dict[str, float]:
    """Return records per second, medians of 5 runs after one warm-up run.

    `kernel`: what `step.absorb` does, from the columns of records to the list of emitted and changed slots. `step`: the
    whole step, including the Arrow columns of emissions and changes and the stored payloads.
    """
    records = load()
    kernel, whole = zip(*(_run(records) for _ in range(6)), strict=True)
    return {
        "kernel_records_per_s": RECORDS / median(kernel[1:]),
        "step_records_per_s": RECORDS / median(whole[1:]),
    }


def _run(records: Records) -> tuple[float, float]:
    """Return the seconds in the kernel and in the whole step, for all records."""
    operator = operator_for(read(SuppressionConfig, CONFIG))
    state = operator.open(MemoryStorage(operator.layout))
    inside = whole = 0.0

    def timed(*arguments: Any) -> int:
        nonlocal inside
        began = time.perf_counter()
        stopped = absorb(*arguments)
        inside += time.perf_counter() - began
        return int(stopped)

    with patch.object(step, "absorb", timed):
        for start in range(0, RECORDS, BATCH):
            part = records.slice(start, start + BATCH)
            began = time.perf_counter()
            state.step(part, MAX_TIMESTAMP)
            whole += time.perf_counter() - began
    return inside, whole
