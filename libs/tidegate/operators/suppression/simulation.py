"""The configurations of suppression that simulated services run."""

from __future__ import annotations

from typing import Any

SIMULATED: dict[str, dict[str, Any]] = {
    "time limit": {"until": {"time_limit": "20ms"}},
    "three keys": {"buffer": {"max_keys": 3, "when_full": "emit"}},
    "both bounds": {
        "until": {"time_limit": "15ms"},
        "buffer": {"max_keys": 4, "max_bytes": 60, "when_full": "emit"},
        "timer": "last_update",
        "bytes_of": "record",
        "dead_letters": "refused",
    },
    "nothing held": {"until": {"time_limit": "0ms"}},
    "bounded lateness": {"until": {"time_limit": "12ms"}, "max_lateness": "4ms", "dead_letters": "refused"},
    "idle": {"until": {"time_limit": "30ms"}, "idle_after": "4s"},
    "merged topics": {
        "input": ["records", "others"],
        "until": {"time_limit": "12ms"},
        "max_lateness": "6ms",
        "idle_after": "4s",
        "dead_letters": "refused",
    },
}
"""By the name of the run."""
EXERCISED: tuple[dict[str, Any], ...] = (
    {"until": "window_close", "grace": "4ms", "windows": "headers"},
    {"until": {"time_limit": "20ms"}, "timer": "window_end", "windows": {"time": "8ms"}},
    {"until": {"time_limit": "20ms"}, "windows": "none", "timestamp": {"field": "n"}},
)
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
