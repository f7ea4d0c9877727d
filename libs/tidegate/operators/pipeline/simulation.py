"""The configurations of pipelines that simulated services run."""

from __future__ import annotations

from random import Random
from typing import Any

from tidegate.operators.pipeline import edits
from tidegate.operators.testing.laws import WINDOW_MS

_WINDOW = f"{WINDOW_MS}ms"
"""The length of windows for which the reference knows when they close."""
_COUNT = {
    "name": "counts",
    "kind": "windowed_aggregation",
    "window": {"tumbling": _WINDOW, "grace": "4ms"},
    "aggregate": {"count": True},
    "emit": "updates",
}
_CLOSED = {"name": "final", "kind": "suppression", "until": "window_close"}
_SLOW = {"name": "slow", "kind": "suppression", "until": {"time_limit": "6ms"}}
_PASSING = {"name": "passing", "kind": "suppression", "until": {"time_limit": "0ms"}}
_FIRST = {"name": "first", "kind": "deduplicate", "within": "5ms", "grace": "9ms"}
_SESSIONS = _COUNT | {"window": {"session": "4ms", "grace": "5ms"}}
_FEW = {"name": "few", "kind": "suppression", "buffer": {"max_keys": 2, "when_full": "emit"}}
_JOINED = {"name": "joined", "kind": "stream_table_join", "table": "facts", "join": "left", "grace": "20ms"}
_PRICED = _JOINED | {"name": "priced", "table": "prices"}
_MERGED = _SESSIONS | {
    "aggregate": {
        "reduce": {
            "function": "tidegate.operators.testing.reducers:total_and_most",
            "emits": {"n": "int64", "most": "int64"},
        }
    },
    "emit": "final",
}
_TWO_TOPICS: dict[str, Any] = {"input": ["records", "others"], "dead_letters": "refused"}
_NOT_A, _OF_C = {"filter": "key <> 'a'::BLOB"}, {"require": "key <> 'c'::BLOB", "reason": "it is of c"}

_OTHER_KEY = {"select_key": "CASE WHEN timestamp % 9 > 0 THEN CAST(timestamp % 7 AS varchar) END"}

SIMULATED: dict[str, dict[str, Any]] = {
    "quiet keys": {"steps": [_COUNT, _CLOSED, {"filter": "count < 3"}], "dead_letters": "refused"},
    "two branches": {
        "steps": [_FIRST, {"to": "branched"}, _SLOW | {"keep": True}, _COUNT | {"from": "input"}, _CLOSED],
        "dead_letters": "refused",
    },
    "three steps": {"steps": [_FIRST, _SLOW, _COUNT | {"emit": "final"}], "dead_letters": "refused"},
    "four steps": {
        "steps": [_NOT_A, _FIRST, _OF_C, _SLOW, {"filter": "key <> 'e'::BLOB"}, _SESSIONS, _CLOSED],
        "dead_letters": "refused",
    },
    "two suppressions": {
        "steps": [_PASSING, _OF_C, _SLOW | {"max_lateness": "4ms"}, _NOT_A, _COUNT],
        "dead_letters": "refused",
    },
    "time of records": {"time": "records", "steps": [_NOT_A, _FEW, _COUNT, {"filter": "count > 1"}, _CLOSED]},
    "merged values": {"steps": [{"select": {"n": "timestamp % 7", "most": "timestamp"}}, _MERGED]},
    "passed records": {"steps": [{"to": "branched"}, _NOT_A, _OF_C], "dead_letters": "refused", "idle_after": "4s"},
    "another key": {
        "steps": [_OTHER_KEY, {"to": "rekeyed", "partitions": 4}, _NOT_A | {"from": "input"}],
        "dead_letters": "refused",
        "idle_after": "4s",
    },
    "another key behind state": {
        "steps": [_FIRST, _OTHER_KEY, {"to": "rekeyed", "partitions": 4}, _COUNT | {"from": "input"}],
        "dead_letters": "refused",
    },
    "idle steps": {"steps": [_COUNT, _CLOSED], "idle_after": "4s"},
    "merged topics, counted": {**_TWO_TOPICS, "steps": [_NOT_A, _COUNT, _OF_C, _CLOSED]},
    "merged topics, joined": {**_TWO_TOPICS, "steps": [_JOINED, _NOT_A, _SLOW], "idle_after": "4s"},
    "quiet keys behind a join": {
        "steps": [_JOINED, _NOT_A, _COUNT, _CLOSED, {"filter": "count < 3"}],
        "dead_letters": "refused",
    },
    "joined twice": {"steps": [_JOINED, _NOT_A, _PRICED, _SLOW], "dead_letters": "refused"},
    "held back, joined twice": {"steps": [_SLOW, _JOINED, _PRICED], "idle_after": "4s"},
    "first matches": {"steps": [_OF_C, _JOINED, _NOT_A, _FIRST, _SLOW]},
    "closed windows, joined": {"steps": [_COUNT, _CLOSED, _JOINED, _SLOW], "dead_letters": "refused"},
    "held back, joined": {"steps": [_NOT_A, _SLOW, _JOINED, _COUNT, _CLOSED]},
    "held back, joined, time of records": {"time": "records", "steps": [_SLOW, _JOINED, _FIRST]},
    "first matches, joined": {"steps": [_OF_C, _JOINED, _NOT_A, _FIRST, _SLOW], "dead_letters": "refused"},
    "held back, joined, joined again, counted": {"steps": [_SLOW, _JOINED, _NOT_A, _PRICED, _COUNT]},
    "closed windows, joined, idle": {"steps": [_COUNT, _CLOSED, _JOINED], "idle_after": "4s"},
}
"""By the name of the run."""
CHANGING = (
    "two branches",
    "three steps",
    "four steps",
    "two suppressions",
    "passed records",
    "merged topics, counted",
    "merged topics, joined",
    "first matches, joined",
    "held back, joined, joined again, counted",
)
"""Those whose steps a person edits while they run. Their reference knows all of their steps."""


_LIVE = {"dead_letters": "refused", "idle_after": "4s"}
"""Options beside the steps that a person adds and takes away."""


def edited(options: dict[str, Any], generator: Random) -> dict[str, Any]:
    """Return the options of a pipeline with other steps, or with one option more or less."""
    if generator.random() < 0.8:
        return options | {"steps": edits.edited(options["steps"], generator)}
    option = generator.choice(sorted(_LIVE))
    others = {name: value for name, value in options.items() if name != option}
    return others if option in options else others | {option: _LIVE[option]}


EXERCISED: tuple[dict[str, Any], ...] = ()
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
