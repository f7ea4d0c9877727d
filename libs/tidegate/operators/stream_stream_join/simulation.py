"""The configurations of joins of two streams that simulated services run."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {
    "join of two streams": {
        "right": "others",
        "join": "outer",
        "before": "15ms",
        "after": "10ms",
        "grace": "20ms",
        "dead_letters": "refused",
    },
}
"""The configurations, by the name of the run."""
_CLOSE: dict[str, Any] = {"right": "others", "before": "15ms", "after": "5ms", "grace": "5ms"}
EXERCISED: tuple[dict[str, Any], ...] = (
    {"join": "outer", **_CLOSE},
    {"join": "inner", **_CLOSE, "windows": "session"},
)
"""Configurations whose kernels differ."""
