"""The configurations of deduplication that simulated services run."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {
    "first within a time": {"within": "15ms", "grace": "5ms", "dead_letters": "refused"},
    "first for ever": {"within": "forever"},
}
"""The configurations, by the name of the run."""
EXERCISED: tuple[dict[str, Any], ...] = ({"within": "15ms", "grace": "5ms", "windows": "session"},)
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
