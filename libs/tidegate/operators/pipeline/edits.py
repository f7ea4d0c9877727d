"""Edits of a pipeline's steps, for tests only: those that a person may make while the pipeline runs.

Steps are those of a file. An edit may give steps that are refused, by the configuration or by what the pipeline holds.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tidegate.operators.testing.laws import WINDOW_MS

Steps = list[dict[str, Any]]
Edit = Callable[[Steps, Random], Steps]

_NAMES = ("early", "late")
"""The names of new steps: few, so that steps come back, also as another kind."""
_NEW: Steps = [
    {"kind": "suppression", "until": {"time_limit": "0ms"}},
    {"kind": "suppression", "until": {"time_limit": "0ms"}, "max_lateness": "0ms"},
    {"kind": "suppression", "until": {"time_limit": "6ms"}, "max_lateness": "4ms"},
    {"kind": "suppression", "buffer": {"max_keys": 1, "when_full": "emit"}},
    {"kind": "deduplicate", "within": "3ms", "grace": "2ms"},
    {
        "kind": "windowed_aggregation",
        "window": {"tumbling": f"{WINDOW_MS}ms", "grace": "2ms"},
        "aggregate": {"count": True},
    },
]
_STATELESS: Steps = [
    {"filter": "key <> 'b'::BLOB"},
    {"require": "key <> 'd'::BLOB", "reason": "it is of d"},
]
_OPTIONS: dict[str, Steps] = {
    "deduplicate": [{"within": within, "grace": grace} for within in ("2ms", "5ms") for grace in ("0ms", "9ms")],
    "suppression": [
        *({"until": {"time_limit": limit}} for limit in ("0ms", "6ms", "14ms")),
        *({"max_lateness": lateness} for lateness in ("0ms", "5ms")),
    ],
    "windowed_aggregation": [{"retention": "9ms"}, {"retention": "20ms"}],
    "stream_table_join": [
        *({"join": join} for join in ("left", "inner")),
        *({"grace": grace} for grace in ("12ms", "20ms")),
    ],
}
"""Other options of steps, by kind."""


def edited(steps: Steps, generator: Random) -> Steps:
    """Return the steps after one or two edits."""
    for edit in generator.choices(_EDITS, k=generator.randrange(1, 3)):
        steps = edit(steps, generator)
    return steps


def _with_one_more(steps: Steps, generator: Random) -> Steps:
    """Return the steps with one more that holds state, behind the last or as a branch of its own."""
    named = [step["name"] for step in steps if "name" in step]
    if not (free := [name for name in _NAMES if name not in named]):
        return steps
    begin = {"from": generator.choice(["input", *named])} if generator.random() < 0.4 else {}
    emit = {"emit": generator.choice(["updates", "final"])}
    new = generator.choice(_NEW)
    return [*steps, {"name": generator.choice(free), **begin, **new, **(emit if "window" in new else {})}]


def _with_one_less(steps: Steps, generator: Random) -> Steps:
    """Return the steps without one that holds state."""
    return without(steps, generator.choice(holding)) if (holding := _holding(steps)) else steps


def _with_other_options(steps: Steps, generator: Random) -> Steps:
    """Return the steps where one that holds state has other options."""
    places = [at for at, step in enumerate(steps) if "kind" in step and step.get("until") != "window_close"]
    if not places:
        return steps
    at = generator.choice(places)
    return [*steps[:at], steps[at] | generator.choice(_OPTIONS[steps[at]["kind"]]), *steps[at + 1 :]]


def _with_other_stateless(steps: Steps, generator: Random) -> Steps:
    """Return the steps with one more, or one less, that holds no state."""
    places = [at for at, step in enumerate(steps) if {"filter", "require"} & step.keys()]
    if places and generator.random() < 0.5:
        at = generator.choice(places)
        return [*steps[:at], *steps[at + 1 :]]
    return _inserted(steps, generator.choice(_STATELESS), generator)


def _with_other_results(steps: Steps, generator: Random) -> Steps:
    """Return the steps where the results of one are kept or no longer kept, or where one topic is written or not."""
    places = [at for at, step in enumerate(steps) if "kind" in step]
    if not places or generator.random() < 0.5:
        return _with_other_topic(steps, generator)
    at = generator.choice(places)
    return [*steps[:at], steps[at] | {"keep": not steps[at].get("keep", False)}, *steps[at + 1 :]]


def _with_other_topic(steps: Steps, generator: Random) -> Steps:
    left = [step for step in steps if "to" not in step]
    if len(left) < len(steps):
        return left
    return _inserted(steps, {"to": "branched"}, generator)


def _inserted(steps: Steps, step: dict[str, Any], generator: Random) -> Steps:
    at = generator.randrange(len(steps) + 1)
    return [*steps[:at], step, *steps[at:]]


_EDITS: list[Edit] = [
    _with_one_more,
    _with_one_more,
    _with_one_less,
    _with_one_less,
    _with_other_options,
    _with_other_stateless,
    _with_other_results,
]


def _holding(steps: Steps) -> list[str]:
    return [step["name"] for step in steps if "kind" in step]


def without(steps: Steps, name: str) -> Steps:
    """Return the steps without the one of that name, where others read what it has read.

    Return all of them if that has no name and would need one.
    """
    [at] = [at for at, step in enumerate(steps) if step.get("name") == name]
    read, left = _read_by(steps, at), [*steps[:at], *steps[at + 1 :]]
    if "from" not in steps[at] and not any(name in _as_list(step.get("from")) for step in steps):
        return left
    if read is None:
        return steps
    if at < len(left) and "from" in steps[at]:
        left[at] = {"from": read, **left[at]}
    return [{**step, "from": _replaced(step["from"], name, read)} if "from" in step else step for step in left]


def _read_by(steps: Steps, at: int) -> Any:
    """Return what the step at that place reads: names, or None for a step without one."""
    if at == 0 or "from" in steps[at]:
        return steps[at].get("from", "input")
    return _read_by(steps, at - 1) if "to" in steps[at - 1] else steps[at - 1].get("name")


def _replaced(read: Any, name: str, by: Any) -> Any:
    """Return what is read when `by` takes the place of the step of that name."""
    if isinstance(read, list):
        every = [other for each in read for other in (_as_list(by) if each == name else [each])]
        return list(dict.fromkeys(every)) if len(set(every)) > 1 else every[0]
    return by if read == name else read


def _as_list(read: Any) -> list[Any]:
    return read if isinstance(read, list) else [read]
