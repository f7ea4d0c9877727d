"""The adapter for recorded chains: counts, suppressions and filters behind each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.pipeline.building import pipeline_of
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.testing.scenarios import text


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the steps on the scenario's input, as one batch, and return their output.

    Time passes as in the engine that was recorded, unless the scenario has another `time`.
    """
    config = scenario["config"]
    windowed = any(step.get("count") for step in config["steps"])
    operator = pipeline_of(_config(config))
    records = Records.from_rows([_row(offset, record) for offset, record in enumerate(scenario["input"])])
    result = operator.open(MemoryStorage(operator.layout)).step(records, 0)
    return {"output": [_result(row, windowed) for row in result.emissions.to_pylist()]}


def _row(offset: int, record: Mapping[str, Any]) -> Row:
    key, value = (None if record[part] is None else record[part].encode() for part in ("key", "value"))
    return Row(key, value, record["timestamp"], offset)


def _config(raw: Mapping[str, Any]) -> PipelineConfig:
    steps = [_step(f"step_{at}", step) for at, step in enumerate(raw["steps"])]
    return PipelineConfig.model_validate(
        {"input": "scenario", "key": "string", "time": raw.get("time", "records"), "steps": steps}
    )


def _step(name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    if "count" in raw:
        counts = {"aggregate": {"count": True}, "emit": "updates", "window": _window(raw["count"])}
        return {"name": name, "kind": "windowed_aggregation", **counts}
    if "suppress" in raw:
        return {"name": name, "kind": "suppression", **_suppression(raw["suppress"])}
    return dict(raw)


def _window(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the windows of a count; one without windows is one over all time."""
    if not raw:
        return {"unlimited": True}
    length = "gap_ms" if raw["window"] == "session" else "size_ms"
    found = {raw["window"]: f"{raw[length]}ms", "grace": f"{raw['grace_ms']}ms"}
    return found | ({"advance": f"{raw['advance_ms']}ms"} if "advance_ms" in raw else {})


def _suppression(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a suppression; Kafka Streams counts a time limit from the first update."""
    if "time_limit_ms" not in raw:
        return {"until": raw["until"]}
    return {"until": {"time_limit": f"{raw['time_limit_ms']}ms"}, "timer": "first_update"}


def _result(row: Mapping[str, Any], windowed: bool) -> dict[str, Any]:
    window = {name: row[name] for name in ("window_start", "window_end")} if windowed else {}
    value = None if row["value"] is None else int(row["value"])
    key = text(row["key"])
    return {"after_offset": row["source"], "key": key, **window, "value": value, "timestamp": row["timestamp"]}


ADAPTERS = {"chain": run}
"""The adapters by the names of recorded scenarios."""
