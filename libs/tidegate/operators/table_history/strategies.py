"""Hypothesis strategies for tables."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.testing.laws import Event, Hold
from tidegate.operators.testing.strategies import (
    all_windows,
    durations,
    histories,
    mostly,
    optional_durations,
    others,
    records,
)


def table_histories() -> st.SearchStrategy[list[Event]]:
    """Return a strategy for the events of a table; sometimes a reader changes which times it needs."""
    return histories(events=mostly(records, others, st.integers(-1, 20).map(Hold)))


@st.composite
def table_history_configs(draw: st.DrawFn) -> TableHistoryConfig:
    """Draw any valid configuration, mostly one that keeps a history."""
    kept = draw(st.sampled_from(["history", "history", "history", "latest"]))
    raw: dict[str, Any] = {"input": "records", "max_ahead": draw(optional_durations(10))}
    raw |= {"versions": "latest"} if kept == "latest" else {"history_retention": draw(durations(15))}
    raw["windows"] = draw(st.sampled_from([None, *all_windows]))
    return TableHistoryConfig.model_validate(raw)
