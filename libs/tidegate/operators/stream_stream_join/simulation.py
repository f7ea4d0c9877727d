"""The configurations of joins of two streams for which kernels are compiled; no simulated service runs one yet."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {}
"""The configurations, by the name of the run."""
_CLOSE: dict[str, Any] = {"before": "15ms", "after": "5ms", "grace": "5ms"}
EXERCISED: tuple[dict[str, Any], ...] = (
    {"join": "outer", **_CLOSE},
    {"join": "inner", **_CLOSE, "windows": "session"},
)
"""Configurations whose kernels differ."""
