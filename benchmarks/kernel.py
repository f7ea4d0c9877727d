"""How fast suppression's kernel is on one core: 4 million records, 10,000 keys, 5 s limit, 100,000 keys bound."""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from tidegate.contracts.config import read
from tidegate.contracts.records import Records
from tidegate.kernels.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression.config import SuppressionConfig

RECORDS, KEYS, BATCH, KEY_WIDTH = 4_000_000, 10_000, 1_000_000, 7
CONFIG = {
    "kind": "suppression",
    "input": "in",
    "until": {"time_limit": "5s"},
    "buffer": {"max_keys": 100_000, "when_full": "emit"},
}


def load(records: int = RECORDS) -> Records:
    """The standard load as columns: keys k000000 to k009999, timestamps up to 5 s out of order, 50-byte values."""
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


def measure() -> dict[str, float]:
    """Records per second of the whole step (kernel, Arrow columns of emissions and changes), median of 5."""
    records = load()
    operator = operator_for(read(SuppressionConfig, CONFIG))
    rates = []
    for _ in range(6):
        state = operator.open(MemoryStorage(operator.layout))
        started = time.perf_counter()
        for start in range(0, RECORDS, BATCH):
            state.step(records.slice(start, start + BATCH), 0)
        rates.append(RECORDS / (time.perf_counter() - started))
    return {"step_records_per_s": median(rates[1:])}
