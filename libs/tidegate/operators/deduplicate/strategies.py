"""Hypothesis strategies for deduplication."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.operators.deduplicate.config import DeduplicateConfig
from tidegate.operators.testing.strategies import all_windows, buffers, durations, optional_durations


@st.composite
def deduplicate_configs(draw: st.DrawFn) -> DeduplicateConfig:
    """Any valid configuration; mostly one that forgets."""
    raw: dict[str, Any] = {
        "input": "records",
        "within": "forever",
        "max_ahead": draw(optional_durations(10)),
        "windows": draw(st.sampled_from([None, *all_windows])),
    }
    if draw(st.integers(0, 4)):
        raw |= {"within": draw(durations(12).filter(lambda within: within != "0ms")), "grace": draw(durations(12))}
    if draw(st.booleans()):
        raw["buffer"] = draw(buffers()) | {"when_full": draw(st.sampled_from(["shut_down", "spill"]))}
    return DeduplicateConfig.model_validate(raw)
