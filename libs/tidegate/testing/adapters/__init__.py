"""How recorded scenarios are run: one adapter per kind of scenario, one line each."""

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
"""What happened, in the form of a scenario's `expected`; parts that an operator does not have are left out."""

ADAPTERS: dict[str, Adapter] = {
    "evicting_window": evicting_window.run,
    "suppress": suppression.run,
    "stream_table_join": stream_table_join.run,
    "versioned_table": versioned_table.run,
    "suppress_final": windows.run_final,
    "window_store": window_store.run,
    "windowed_count": windows.run_updates,
}
