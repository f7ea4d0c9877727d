"""Helpers for a table's partition and its records."""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.table_history.state import TableHistoryState


def config(**given: Any) -> TableHistoryConfig:
    """A configuration; a history of 10 ms unless something else is given."""
    return TableHistoryConfig.model_validate({"input": "records"} | (given or {"history_retention": "10ms"}))


def opened(storage: MemoryStorage | None = None, **given: Any) -> TableHistoryState:
    """A partition of that configuration: an empty one, or the one in the storage."""
    operator = TableHistory(config(**given))
    return operator.open(storage or MemoryStorage(operator.layout))


def records(*rows: tuple[str | None, str | None, int], first: int = 0) -> Records:
    """Key, value, timestamp; offsets count on from `first`."""
    return Records.from_rows(
        Row(_bytes(key), _bytes(value), timestamp, first + at) for at, (key, value, timestamp) in enumerate(rows)
    )


def changed(result: StepResult) -> list[tuple[str, bytes, int]]:
    """Op, key and timestamp of the changelog."""
    return [(row["op"], row["key"], row["timestamp"]) for row in result.changes.to_pylist()]


def held(state: TableHistoryState) -> list[tuple[bytes, bytes | None, int]]:
    """Key, value and timestamp of all versions, by timestamp and offset."""
    return [(row["key"], row["value"], row["timestamp"]) for row in state.snapshot().to_pylist()]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
