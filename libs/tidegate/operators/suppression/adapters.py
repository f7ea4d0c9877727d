"""The adapter for recorded scenarios of suppression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tidegate.operators.suppression import Suppression, SuppressionConfig
from tidegate.operators.testing.driver import Driver
from tidegate.operators.testing.scenarios import piped, rows, text

_WHEN_FULL = {"emit": "emit", "shutdown": "shut_down", "shut_down": "shut_down", "spill": "spill"}


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the operator on the scenario's input and return its output.

    If a full buffer stops the operator, the output includes the evictions that the record would have caused.
    """
    try:
        driver = Driver(Suppression(_config(scenario["config"])))
    except ValidationError:
        return {"exception": {"at_offset": -1}, "output": []}
    output, stopped_at = piped(driver, scenario["input"], rows)
    if stopped_at is not None:
        return {"exception": {"at_offset": stopped_at}, "output": output}
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


def _held(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": text(row["key"]),
        "value": text(row["value"]),
        "timestamp": row["timestamp"],
        "buffer_time": row["place"],
    }


ADAPTERS = {"suppress": run}
"""The adapters by the names of recorded scenarios."""
