"""The configurations of windowed aggregations that simulated services run."""

from __future__ import annotations

from typing import Any

_REDUCERS = "tidegate.operators.testing.reducers"
_COUNT = {"aggregate": {"count": True}, "emit": "final"}
SIMULATED: dict[str, dict[str, Any]] = {
    "final counts": _COUNT | {"window": {"tumbling": "8ms", "grace": "5ms"}, "dead_letters": "refused"},
    "sessions": _COUNT | {"window": {"session": "4ms", "grace": "5ms"}},
    "elements of sessions": _COUNT | {"window": {"session": "4ms", "grace": "5ms"}, "evictor": {"count": 2}},
    "evicted elements": _COUNT
    | {"window": {"hopping": "8ms", "advance": "4ms", "grace": "5ms"}, "evictor": {"count": 2}},
}
"""By the name of the run."""
_NUMBERS = {name: {"field": "n"} for name in ("sum", "min", "max", "avg")}
EXERCISED: tuple[dict[str, Any], ...] = (
    {"window": {"tumbling": "8ms", "grace": "1h"}, "aggregate": _NUMBERS, "emit": "updates"},
    {
        "window": {"tumbling": "8ms", "grace": "1h"},
        "aggregate": _NUMBERS | {"first": True, "last": {"field": "d"}, "collect": {"field": "text"}},
        "emit": "on_time",
        "evictor": {"function": "tidegate.operators.testing.evictors:even"},
    },
    {
        "window": {"session": "8ms", "grace": "1h"},
        "aggregate": {"reduce": {"function": f"{_REDUCERS}:total_and_most", "emits": {"n": "int64", "most": "int64"}}},
        "emit": "updates",
    },
)
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
