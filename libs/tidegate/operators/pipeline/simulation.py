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
        "steps": [_NOT_A, _FIRST, _OF_C, _SLOW, {"filter": "timestamp % 3 > 0"}, _SESSIONS, _CLOSED],
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
    "closed windows, joined, idle": {"steps": [_COUNT, _CLOSED, _JOINED], "idle_after": "4s"},
}
"""By the name of the run."""
_PATIENT = _SLOW | {"until": {"time_limit": "14ms"}}
CHANGED: dict[str, dict[str, Any]] = {
    "two branches": {
        "steps": [_FIRST, {"to": "branched"}, _PATIENT | {"keep": True}, _OF_C, _COUNT | {"from": "input"}, _CLOSED]
    },
    "three steps": {"steps": [_NOT_A, _FIRST, _PATIENT, _COUNT | {"emit": "final"}]},
    "four steps": {"steps": [_FIRST, _OF_C, _NOT_A, _PATIENT, _SESSIONS, _CLOSED]},
}
"""What some of them may become while records are held, and from which they may change back."""
EXERCISED: tuple[dict[str, Any], ...] = ()
"""More configurations, whose kernels differ: `tidegate setup` compiles for them, too."""
