"""Run recorded scenarios: functions that the adapters of several operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.contracts.errors import BufferFull
from tidegate.operators.testing.driver import Driver, Emission

Rows = list[dict[str, Any]]


def piped(
    driver: Driver, records: Iterable[Mapping[str, Any]], shown: Callable[[int, list[Emission]], Rows]
) -> tuple[Rows, int | None]:
    """Pipe the records; return what they emit, as `shown`, and the offset at which a full buffer stops the operator.

    The emissions include those that the record at this offset causes without a limit. The offset is None if the buffer
    is never full.
    """
    output: Rows = []
    for offset, record in enumerate(records):
        arguments = record["key"], record["value"], record["timestamp"]
        try:
            output += shown(offset, driver.pipe(*arguments))
        except BufferFull:
            stopped: Any = driver.operator
            unbounded = type(stopped)(stopped.config.model_copy(update={"buffer": None}))
            return output + shown(offset, driver.restarted(unbounded).pipe(*arguments)), offset
    return output, None


def rows(offset: int, emissions: list[Emission]) -> Rows:
    """Return the records that were emitted for the record at the offset."""
    return [
        {
            "after_offset": offset,
            "key": text(emission.key),
            "value": text(emission.value),
            "timestamp": emission.timestamp,
        }
        for emission in emissions
    ]


def text(content: bytes | None) -> str | None:
    """Return the text of a key or value."""
    return None if content is None else content.decode()
