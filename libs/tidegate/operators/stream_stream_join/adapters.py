"""The adapter for recorded scenarios of the stream-stream join. Values are JSON numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidegate.operators.stream_stream_join import StreamStreamJoin, StreamStreamJoinRules
from tidegate.operators.stream_stream_join.config import SIDES
from tidegate.operators.testing.driver import Driver, Emission
from tidegate.operators.testing.scenarios import text


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run the join on the records of both streams in their order; return its output and the offsets of late records."""
    driver = Driver(StreamStreamJoin(_rules(scenario["config"])))
    output: list[dict[str, Any]] = []
    for offset, record in enumerate(scenario["input"]):
        port = SIDES.index(record["topic"])
        emissions = driver.pipe(record["key"], record["value"], record["timestamp"], port=port)
        output += [{"after_offset": offset} | _shown(emission) for emission in emissions]
    return {"output": output, "late": [row["offset"] for row in driver.late]}


def _rules(raw: Mapping[str, Any]) -> StreamStreamJoinRules:
    times = {name: f"{raw[f'{name}_ms']}ms" for name in ("before", "after", "grace")}
    return StreamStreamJoinRules.model_validate({"join": raw["join"]} | times)


def _shown(emission: Emission) -> dict[str, Any]:
    values = {side: None if value is None else str(value) for side, value in json.loads(emission.value or b"").items()}
    return {"key": text(emission.key)} | values | {"timestamp": emission.timestamp}


ADAPTERS = {"stream_stream_join": run}
"""The adapters by the names of recorded scenarios."""
