"""Helpers for a suppression partition and its records."""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Layout, OperatorState, StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.suppression import Suppression, SuppressionConfig

EMIT_2 = {"max_keys": 2, "when_full": "emit"}


def config(**given: Any) -> SuppressionConfig:
    """A configuration; a limit of 1 h unless something else is given."""
    if not given.keys() & {"until", "buffer"}:
        given["until"] = {"time_limit": "1h"}
    return SuppressionConfig.model_validate({"input": "records"} | given)


def opened(layout: Layout | None = None, **given: Any) -> OperatorState:
    """An empty partition of that configuration."""
    operator = Suppression(config(**given))
    return operator.open(MemoryStorage(layout or operator.layout))


def records(*rows: tuple[str | bytes | None, str | bytes | None, int], first: int = 0) -> Records:
    """Key, value, timestamp; offsets count on from `first`."""
    return Records.from_rows(
        Row(_bytes(key), _bytes(value), timestamp, first + at) for at, (key, value, timestamp) in enumerate(rows)
    )


def emitted(result: StepResult) -> list[tuple[bytes, bytes | None, int, str]]:
    """Key, value, timestamp and cause of the emissions."""
    rows = result.emissions.to_pylist()
    return [(row["key"], row["value"], row["timestamp"], row["cause"]) for row in rows]


def changed(result: StepResult) -> list[tuple[str, bytes]]:
    """Op and key of the changelog."""
    return [(row["op"], row["key"]) for row in result.changes.to_pylist()]


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
