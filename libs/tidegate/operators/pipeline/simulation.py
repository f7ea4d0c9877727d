"""The configurations of pipelines that simulated services run."""

from __future__ import annotations

from typing import Any

_COUNT = {
    "name": "counts",
    "kind": "windowed_aggregation",
    "window": {"tumbling": "8ms", "grace": "4ms"},
    "aggregate": {"count": True},
    "emit": "updates",
}
_CLOSED = {"name": "final", "kind": "suppression", "until": "window_close"}
_SLOW = {"name": "slow", "kind": "suppression", "until": {"time_limit": "6ms"}}
_FIRST = {"name": "first", "kind": "deduplicate", "within": "5ms", "grace": "9ms"}

SIMULATED: dict[str, dict[str, Any]] = {
    "quiet keys": {"steps": [_COUNT, _CLOSED, {"filter": "count < 3"}], "dead_letters": "refused"},
    "two branches": {
        "steps": [_FIRST, {"to": "branched"}, _SLOW | {"keep": True}, _COUNT | {"from": "input"}, _CLOSED],
        "dead_letters": "refused",
    },
    "three steps": {"steps": [_FIRST, _SLOW, _COUNT | {"emit": "final"}], "dead_letters": "refused"},
}
"""By the name of the run."""
EXERCISED: tuple[dict[str, Any], ...] = ()
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
