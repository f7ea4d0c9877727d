"""The adapter for recorded scenarios of deduplication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import BufferFull, ConfigurationError
from tidegate.operators.deduplicate import Deduplicate, DeduplicateRules
from tidegate.operators.testing.driver import Driver


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the operator on the scenario's input; return its output, the late records and what is remembered."""
    try:
        driver = Driver(Deduplicate(read(DeduplicateRules, scenario["config"])))
    except ConfigurationError:
        return {"exception": {"at_offset": -1}, "output": []}
    output: list[dict[str, Any]] = []
    for offset, record in enumerate(scenario["input"]):
        try:
            emissions = driver.pipe(record["key"], record["value"], record["timestamp"])
        except BufferFull:
            return {"exception": {"at_offset": offset}, "output": output}
        output += [{"after_offset": offset} | _shown(vars(emission)) for emission in emissions]
    remembered = [{"key": row["key"].decode(), "timestamp": row["timestamp"]} for row in driver.held()]
    late = [_shown(row) for row in driver.late]
    return {"exception": None, "output": output, "late": late, "remembered": remembered}


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    value = None if row["value"] is None else row["value"].decode()
    return {"key": row["key"].decode(), "value": value, "timestamp": row["timestamp"]}


ADAPTERS = {"deduplicate": run}
"""The adapters by the names of recorded scenarios."""
