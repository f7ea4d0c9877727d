"""The join that simulated services run, beside the service of its table."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {"table and join": {"table": "facts", "join": "left", "grace": "20ms"}}
"""By the name of the run."""
EXERCISED: tuple[dict[str, Any], ...] = (
    {"table": "facts", "join": "inner", "windows": "headers"},
    {"table": "facts", "join": "left", "joiner": "tidegate.operators.testing.joiners:dashed"},
)
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
