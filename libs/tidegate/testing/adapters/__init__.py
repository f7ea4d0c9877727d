"""The adapters that run recorded scenarios: one per kind of scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.testing.adapters import (
    evicting_window,
    stream_table_join,
    suppression,
    versioned_table,
    window_store,
    windows,
)

Scenario = Mapping[str, Any]
Adapter = Callable[[Scenario], dict[str, Any]]
"""Runs a scenario and returns the result in the form of `expected`, without parts that the operator does not have."""

ADAPTERS: dict[str, Adapter] = {
    "evicting_window": evicting_window.run,
    "suppress": suppression.run,
    "stream_table_join": stream_table_join.run,
    "versioned_table": versioned_table.run,
    "suppress_final": windows.run_final,
    "window_store": window_store.run,
    "windowed_count": windows.run_updates,
}
