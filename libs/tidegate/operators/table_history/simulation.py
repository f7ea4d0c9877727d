"""The table that simulated services run for a join; none runs a table alone."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {}
TABLE_OF_JOIN = {
    "history_retention": "35ms",
    "rewind_window": "365d",  # longer than any silence: the lease of an absent reader stays valid
}
EXERCISED: tuple[dict[str, Any], ...] = (
    {"history_retention": "1h"},
    {"history_retention": "35ms", "hold_for_readers": 0},
    {"history_retention": "35ms", "windows": "headers"},
    {"versions": "latest"},
)
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
