"""Hypothesis strategies for configurations of pipelines: random chains of up to five steps."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.operators.pipeline.config import PipelineConfig

FILTER, REQUIRE, REASON = "key <> 'a'::BLOB", "key <> 'ab'::BLOB", "it is of the wrong key"
_STATELESS = st.sampled_from([{"filter": FILTER}, {"require": REQUIRE, "reason": REASON}])
_WINDOWS = st.sampled_from(
    [
        {"tumbling": "5ms", "grace": "3ms"},
        {"hopping": "5ms", "advance": "2ms", "grace": "0ms"},
        {"session": "3ms", "grace": "2ms"},
    ]
)
_LIMITS = st.sampled_from(["0ms", "4ms", "9ms"])


@st.composite
def _holding(draw: st.DrawFn, windowed: bool) -> dict[str, Any]:
    """A step that holds records back, or remembers them."""
    if draw(st.booleans()):
        return {"kind": "deduplicate", "within": draw(st.sampled_from(["3ms", "8ms"])), "grace": draw(_LIMITS)}
    if windowed and draw(st.booleans()):
        return {"kind": "suppression", "until": "window_close"}
    late = {"max_lateness": draw(_LIMITS)} if draw(st.booleans()) else {}
    full = {"buffer": {"max_keys": 2, "when_full": "emit"}} if draw(st.booleans()) else {}
    return {"kind": "suppression", "until": {"time_limit": draw(_LIMITS)}, **late, **full}


@st.composite
def _counting(draw: st.DrawFn) -> dict[str, Any]:
    emit = draw(st.sampled_from(["updates", "updates", "final", "on_time"]))
    window, aggregate = draw(_WINDOWS), {"count": True}
    return {"kind": "windowed_aggregation", "window": window, "aggregate": aggregate, "emit": emit}


@st.composite
def _steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to five steps, of which one at least holds state."""
    before = draw(st.lists(_STATELESS | _holding(windowed=False), max_size=2))
    windows = [draw(_counting())] if draw(st.booleans()) else []
    behind = draw(st.lists(_STATELESS | _holding(windowed=bool(windows)), max_size=2))
    steps = [*before, *windows, *behind]
    return steps if any("kind" in step for step in steps) else [*steps, draw(_holding(windowed=False))]


@st.composite
def pipeline_configs(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of pipelines."""
    named = [{"name": f"s{at}", **step} if "kind" in step else step for at, step in enumerate(draw(_steps()))]
    time = draw(st.sampled_from(["pipeline", "pipeline", "records"]))
    return PipelineConfig.model_validate({"input": "in", "steps": named, "time": time, "windows": "ignore"})
