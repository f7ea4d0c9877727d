"""Helpers for a join, its table and their records."""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.stream_table_join.state import StreamTableJoinState
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.table_history.state import TableHistoryState

Line = tuple[str | bytes | None, str | bytes | None, int]


def config(**given: Any) -> StreamTableJoinConfig:
    """A left join; more or something else is given."""
    return StreamTableJoinConfig.model_validate({"input": "in", "table": "table", "join": "left"} | given)


def opened(table: TableHistoryState, storage: MemoryStorage | None = None, **given: Any) -> StreamTableJoinState:
    """A partition of that configuration which reads the table; empty unless it lives in the storage."""
    operator = StreamTableJoin(config(**given))
    state = operator.open(storage or MemoryStorage(operator.layout))
    state.read_table(table)
    return state


def table_of(*lines: Line, **given: Any) -> TableHistoryState:
    """A history of the records, kept for an hour unless something else is given."""
    rules = {"input": "table"} | (given or {"history_retention": "1h"})
    operator = TableHistory(TableHistoryConfig.model_validate(rules))
    state = operator.open(MemoryStorage(operator.layout))
    state.step(records(*lines), 0)
    return state


def records(*lines: Line, first: int = 0) -> Records:
    """Key, value, timestamp; offsets count on from `first`."""
    return Records.from_rows(
        Row(_bytes(key), _bytes(value), timestamp, first + at) for at, (key, value, timestamp) in enumerate(lines)
    )


def joined(result: StepResult) -> list[tuple[bytes | None, bytes | None, int, str]]:
    """Key, value, timestamp and cause of the emissions."""
    rows = result.emissions.to_pylist()
    return [(row["key"], row["value"], row["timestamp"], row["cause"]) for row in rows]


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
