"""The speed of the join's whole step on one core: 4 million records, 10,000 keys, 200,000 versions, 5 s grace.

The standard load in one partition, in batches of 200,000 records, in three variants: with the default JSON, with a
joiner that returns the table's value, and with grace 0, which shows the cost of the buffer.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.load import KEYS, RECORDS, RECORDS_PER_MS, columns, outgoing
from tidegate.contracts.config.base import read
from tidegate.contracts.records import Records
from tidegate.kernels.columns import records_of
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.operators.stream_table_join.config import StreamTableJoinConfig
from tidegate.operators.stream_table_join.state import StreamTableJoinState
from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.table_history.state import TableHistoryState

VERSIONS, BATCH, RUNS = 200_000, 200_000, 5
TABLE = {"kind": "table_history", "input": "in", "history_retention": "10m"}
JOIN = {"kind": "stream_table_join", "input": "in", "table": "facts", "join": "left"}
VARIANTS: dict[str, dict[str, Any]] = {
    "json": {"grace": "5s"},
    "joiner": {"grace": "5s", "joiner": "benchmarks.in_memory.join_kernel:value_of_table"},
    "grace_0": {"grace": 0},
}


def measure(say: Any) -> dict[str, float]:
    """Return the records per second of the whole step, medians of 5 runs after one warm-up run."""
    records, table = load(RECORDS), table_state()
    figures = {}
    for name, given in VARIANTS.items():
        seconds = [_run(records, table, given) for _ in range(1 + RUNS)]
        figures[f"{name}_records_per_s"] = RECORDS / median(seconds[1:])
        say(f"{name}: {figures[f'{name}_records_per_s']:,.0f}")
    return figures


def load(records: int) -> Records:
    """Return that many records of the standard load, spread over its whole time span."""
    key, timestamp = columns(records, KEYS, RECORDS // RECORDS_PER_MS)
    made = outgoing(np.arange(records), key, timestamp)
    rows = {"key": made.key, "value": made.value, "headers": made.headers}
    times = {"timestamp": pa.array(timestamp), "offset": pa.array(np.arange(records))}
    return records_of(pa.record_batch(rows | times))


def table_state() -> TableHistoryState:
    """Return a table history filled with the table's records."""
    operator = operator_for(read(TableHistoryConfig, TABLE))
    state = operator.open(MemoryStorage(operator.layout))
    assert isinstance(state, TableHistoryState)
    state.step(load(VERSIONS), 0)
    return state


def value_of_table(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    """Return the table's value: a joiner without any cost of its own."""
    return table["value"]


def _run(records: Records, table: TableHistoryState, given: dict[str, Any]) -> float:
    """Return the seconds for all records."""
    operator = operator_for(read(StreamTableJoinConfig, JOIN | given))
    state = operator.open(MemoryStorage(operator.layout))
    assert isinstance(state, StreamTableJoinState)
    state.read_table(table)
    began = time.perf_counter()
    for start in range(0, RECORDS, BATCH):
        state.step(records.slice(start, start + BATCH), 0)
    return time.perf_counter() - began
