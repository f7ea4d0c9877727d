"""The join that simulated services run, beside the service of its table."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {"table and join": {"table": "facts", "join": "left", "grace": "20ms"}}
"""By the name of the run."""
