"""The table that simulated services run for a join; none runs a table alone."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {}
TABLE_OF_JOIN = {
    "history_retention": "35ms",
    "rewind_window": "365d",  # longer than any silence: the lease of an absent reader stays valid
}
