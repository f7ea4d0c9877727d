"""The adapter for recorded scenarios of the stream-table join.

Values are `<left>-<right>`; a scenario whose config has `value: json` expects the join's default JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.testing import joiners
from tidegate.operators.testing.driver import Driver
from tidegate.operators.testing.scenarios import rows, text


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the join on the scenario's stream and table records in their order, and return its output."""
    history, join = _table(scenario["config"]), _join(scenario["config"])
    if any(join.table_conflicts(history.as_table())):
        return {"exception": {"at_offset": -1}, "output": []}
    table = Driver(TableHistory(history))
    stream = Driver(StreamTableJoin(join), table=table)
    output: list[dict[str, Any]] = []
    for offset, record in enumerate(scenario["input"]):
        driver = stream if record["topic"] == "stream" else table
        output += rows(offset, driver.pipe(record["key"], record["value"], record["timestamp"]))
    return {"exception": None, "output": output, "final_buffer": [_held(row) for row in stream.held()]}


def _table(raw: Mapping[str, Any]) -> TableHistoryConfig:
    retention = (
        {"history_retention": f"{raw['history_retention_ms']}ms"} if raw["versioned"] else {"versions": "latest"}
    )
    return TableHistoryConfig.model_validate({"input": "table"} | retention)


def _join(raw: Mapping[str, Any]) -> StreamTableJoinConfig:
    grace, dashed = raw["grace_ms"], raw.get("value") != "json"
    return StreamTableJoinConfig.model_validate(
        {
            "input": "stream",
            "table": "table",
            "join": raw["join"],
            "grace": None if grace is None else f"{grace}ms",
            "before_history": "join",
            "joiner": f"{joiners.__name__}:{joiners.dashed.__name__}" if dashed else None,
        }
    )


def _held(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": text(row["key"]), "value": text(row["value"]), "timestamp": row["timestamp"]}


ADAPTERS = {"stream_table_join": run}
"""The adapters by the names of recorded scenarios."""
