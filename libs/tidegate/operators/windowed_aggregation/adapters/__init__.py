"""Adapters for recorded scenarios of windows, by the names that the recordings have."""

from __future__ import annotations

from tidegate.operators.windowed_aggregation.adapters import evicting_window, window_store, windows

ADAPTERS = {
    "evicting_window": evicting_window.run,
    "suppress_final": windows.run_final,
    "window_store": window_store.run,
    "windowed_count": windows.run_updates,
}
