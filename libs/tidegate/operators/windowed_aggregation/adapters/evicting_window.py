"""Adapter for recorded scenarios of windows with evictors.

Time advances are separate inputs; records do not move stream time. A record's value is wrapped as JSON, together with
the number that its text stands for, parsed as Java parses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import orjson

from tidegate.contracts.event_time import MAX_TIMESTAMP, NO_STREAM_TIME
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.testing import evictors
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig
from tidegate.operators.windowed_aggregation.elements import ElementsState

_STILL = np.array([NO_STREAM_TIME])
"""Stream time that a record leads to: none, so that records do not move it."""


def run(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return the firings and late records of each input, and the elements that are left."""
    config, firings, late = scenario["config"], [], []
    operator = WindowedAggregation(_config(config))
    state = operator.open(MemoryStorage(operator.layout))
    assert isinstance(state, ElementsState)
    bounded = config["window"]["type"] != "global"
    for at, event in enumerate(scenario["input"]):
        result = _played(state, event, at)
        firings += [{"after_input": at} | firing for firing in _firings(result, bounded)]
        late += [{"after_input": at, **_record(event)} for _ in range(result.late.num_rows)]
    return {"exception": None, "firings": firings, "late": late, "final_state": list(_left(state, bounded))}


def _played(state: ElementsState, event: Mapping[str, Any], offset: int) -> StepResult:
    if event["type"] == "watermark":
        return state.advance(min(event["timestamp"] + 1, MAX_TIMESTAMP))
    row = Row(event["key"].encode(), _wrapped(event["value"]), event["timestamp"], offset)
    return state.step(Records.from_rows([row]), 0, _STILL)


def _wrapped(text: str) -> bytes:
    number = float(text)
    return orjson.dumps({"n": int(number) if number.is_integer() else number, "text": text})


def _unwrapped(value: str | bytes) -> str:
    return str(orjson.loads(value)["text"])


def _record(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ("key", "value", "timestamp")}


def _firings(result: StepResult, bounded: bool) -> list[dict[str, Any]]:
    rows = sorted(result.emissions.to_pylist(), key=lambda row: (row["window_end"], row["key"], row["window_start"]))
    return [_window(row, bounded) | {"elements": _elements(row["value"])} for row in rows]


def _elements(listed: bytes) -> list[list[Any]]:
    return [[_unwrapped(value), timestamp] for value, timestamp in orjson.loads(listed)]


def _window(row: Mapping[str, Any], bounded: bool) -> dict[str, Any]:
    bounds = {name: row[name] if bounded else None for name in ("window_start", "window_end")}
    return {"key": row["key"].decode()} | bounds


def _left(state: ElementsState, bounded: bool) -> Iterator[dict[str, Any]]:
    """Yield the elements that are left, by key and window start, in order of arrival."""
    rows = [row for row in state.snapshot().to_pylist() if row["arrival"] >= 0]
    rows.sort(key=lambda row: (row["key"], row["window_start"], row["arrival"]))
    for _, held in groupby(rows, key=lambda row: (row["key"], row["window_start"])):
        elements = list(held)
        yield _window(elements[0], bounded) | {
            "elements": [[_unwrapped(row["value"]), row["timestamp"]] for row in elements]
        }


def _config(raw: Mapping[str, Any]) -> WindowedAggregationConfig:
    trigger, grace = raw["trigger"], {"grace": f"{raw['allowed_lateness_ms']}ms"}
    every = max(1, trigger["count"]) if trigger["type"] == "count" else None
    window = _shape(raw["window"])
    return WindowedAggregationConfig.model_validate(
        {
            "input": "scenario",
            "window": window if "unlimited" in window else window | grace,
            "aggregate": {"function": _named("listed")},
            "every": every,
            "emit": None if every else "on_time",
            "evictor": _evictor(raw["evictor"]),
        }
    )


def _shape(raw: Mapping[str, Any]) -> dict[str, Any]:
    match raw["type"]:
        case "tumbling":
            return {"tumbling": f"{raw['size_ms']}ms"}
        case "sliding":
            return {"hopping": f"{raw['size_ms']}ms", "advance": f"{raw['slide_ms']}ms"}
        case _:
            return {"unlimited": True}


def _evictor(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    when = {"when": "after" if raw.get("evict_after") else "before"}
    match raw["type"]:
        case "count":
            return {"count": max(0, raw["max_count"])} | when
        case "time":
            return {"time": f"{max(0, raw['window_ms'])}ms"} | when
        case "delta":
            return {"delta": {"threshold": raw["threshold"], "distance": {"field": "n"}}} | when
        case "middle":
            return _middle(raw)
    return None


def _middle(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    named = {moment: _named(raw[moment]) for moment in ("before", "after") if raw[moment]}
    if len(named) == 2:
        return {"function": named}
    return next(({"function": name, "when": moment} for moment, name in named.items()), None)


def _named(function: str) -> str:
    return f"{evictors.__name__}:{function}"
