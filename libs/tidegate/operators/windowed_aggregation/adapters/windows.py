"""Adapters for recorded scenarios of windowed counts: emitting every change, or final results only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tidegate.operators.testing.driver import Driver, Emission
from tidegate.operators.testing.scenarios import piped
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig
from tidegate.operators.windowed_aggregation.window_times import CLOSED

DAY_MS = 86_400_000
"""Default retention of windows in Kafka Streams."""


def run_updates(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the operator on the scenario's input, emitting every change, and return its output."""
    return _run(scenario, "updates")


def run_final(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the operator on the scenario's input, emitting final results, and return its output.

    If a full buffer stops the operator, the output includes the results that the next record would have emitted.
    """
    return _run(scenario, "final")


def _run(scenario: Mapping[str, Any], emit: str) -> dict[str, Any]:
    try:
        driver = Driver(WindowedAggregation(_config(scenario["config"], emit)))
    except ValidationError:
        return {"exception": {"at_offset": -1}, "output": []}
    output, stopped_at = piped(driver, scenario["input"], _rows)
    if stopped_at is not None:
        return {"exception": {"at_offset": stopped_at}, "output": output}
    held = [_held(row) for row in driver.held() if row["phase"] != CLOSED]
    return {"exception": None, "output": output, "final_buffer": held}


def _config(raw: Mapping[str, Any], emit: str) -> WindowedAggregationConfig:
    bound = raw.get("max_records")
    return WindowedAggregationConfig.model_validate(
        {
            "input": "scenario",
            "window": _window(raw) | {"grace": f"{raw['grace_ms']}ms"},
            "aggregate": {"count": True},
            "emit": emit,
            "retention": f"{raw.get('retention_ms') or DAY_MS}ms",
            "buffer": None if bound is None else {"max_keys": bound, "when_full": "shut_down"},
        }
    )


def _window(raw: Mapping[str, Any]) -> dict[str, str]:
    if raw["window"] == "session":
        return {"session": f"{raw['gap_ms']}ms"}
    if raw["window"] == "tumbling":
        return {"tumbling": f"{raw['size_ms']}ms"}
    return {"hopping": f"{raw['size_ms']}ms", "advance": f"{raw['advance_ms']}ms"}


def _rows(offset: int, emissions: list[Emission]) -> list[dict[str, Any]]:
    return [{"after_offset": offset} | _window_row(vars(emission)) for emission in emissions]


def _held(row: Mapping[str, Any]) -> dict[str, Any]:
    return _window_row(row) | {"buffer_time": row["window_end"]}


def _window_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": row["key"].decode(),
        "window_start": row["window_start"],
        "window_end": row["window_end"],
        "value": None if row["value"] is None else int(row["value"]),
        "timestamp": row["timestamp"],
    }
