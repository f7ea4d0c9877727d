"""The adapter for recorded scenarios of suppression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tidegate.contracts.errors import BufferFull
from tidegate.operators.suppression import Suppression, SuppressionConfig
from tidegate.operators.testing.driver import Driver, Emission

_WHEN_FULL = {"emit": "emit", "shutdown": "shut_down", "shut_down": "shut_down", "spill": "spill"}


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the operator on the scenario's input and return its output.

    If a full buffer stops the operator, the output includes the evictions that the record would have caused.
    """
    try:
        driver = Driver(Suppression(_config(scenario["config"])))
    except ValidationError:
        return {"exception": {"at_offset": -1}, "output": []}
    output: list[dict[str, Any]] = []
    for offset, record in enumerate(scenario["input"]):
        arguments = record["key"], record["value"], record["timestamp"]
        try:
            output += _rows(offset, driver.pipe(*arguments))
        except BufferFull:
            output += _rows(offset, driver.restarted(_unbounded(driver.operator)).pipe(*arguments))
            return {"exception": {"at_offset": offset}, "output": output}
    return {"exception": None, "output": output, "final_buffer": [_held(row) for row in driver.held()]}


def _config(raw: Mapping[str, Any]) -> SuppressionConfig:
    bounds = {"max_keys": raw.get("max_records"), "max_bytes": raw.get("max_bytes")}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    limit = raw.get("time_limit_ms")
    return SuppressionConfig.model_validate(
        {
            "input": "scenario",
            "until": None if limit is None else {"time_limit": f"{limit}ms"},
            "buffer": given | {"when_full": _WHEN_FULL[raw["when_full"]]} if given else None,
            "timer": raw.get("timer") or "first_update",
            "bytes_of": raw.get("bytes_of") or "value",
        }
    )


def _unbounded(operator: Any) -> Suppression:
    return Suppression(operator.config.model_copy(update={"buffer": None}))


def _rows(offset: int, emissions: list[Emission]) -> list[dict[str, Any]]:
    return [
        {
            "after_offset": offset,
            "key": _text(emission.key),
            "value": _text(emission.value),
            "timestamp": emission.timestamp,
        }
        for emission in emissions
    ]


def _held(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "timestamp": row["timestamp"],
        "buffer_time": row["place"],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()


ADAPTERS = {"suppress": run}
"""The adapters by the names of recorded scenarios."""
