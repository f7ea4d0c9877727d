"""Hypothesis strategies for suppression."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.operators.suppression.config import SuppressionConfig
from tidegate.operators.testing.strategies import all_windows, buffers, durations, optional_durations


@st.composite
def suppression_configs(draw: st.DrawFn) -> SuppressionConfig:
    """Any valid configuration."""
    raw: dict[str, Any] = {
        "input": "records",
        "bytes_of": draw(st.sampled_from(["value", "record"])),
        "max_ahead": draw(optional_durations(10)),
    }
    if draw(st.integers(0, 2)) == 0:
        strict = st.sampled_from(["shut_down", "spill"])
        buffer = draw(st.none() | buffers().map(lambda bounds: bounds | {"when_full": draw(strict)}))
        raw |= {"until": "window_close", "grace": draw(durations(12)), "buffer": buffer}
        raw["windows"] = draw(st.sampled_from(all_windows[2:]))
        return SuppressionConfig.model_validate(raw)
    raw["windows"] = draw(st.sampled_from([None, *all_windows]))
    timers = ["first_update", "last_update", *(["window_end", None] if raw["windows"] in all_windows[2:] else [])]
    raw["timer"] = draw(st.sampled_from(timers))
    raw["max_lateness"] = draw(optional_durations(10))
    if buffer := draw(st.none() | buffers()):
        raw["buffer"] = buffer
    if not buffer or buffer["when_full"] == "spill" or draw(st.booleans()):
        raw["until"] = {"time_limit": draw(durations(12))}
    return SuppressionConfig.model_validate(raw)
