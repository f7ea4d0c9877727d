"""Hypothesis strategies for windowed aggregations."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.event_time import MAX_TIME, parse_duration_ms
from tidegate.contracts.records import Row
from tidegate.operators.testing.laws import Event
from tidegate.operators.testing.strategies import (
    buffers,
    durations,
    epochs,
    headers,
    histories,
    lengths,
    mostly,
    optional_durations,
    others,
    placed,
    records,
    soon,
)
from tidegate.operators.windowed_aggregation.config import WindowedAggregationConfig

_small = [b"1", b"-7", b"2.5", b'{"n": 2}', b'{"n": -0.25}', b'{"n": 10}', b'{"n": 3}', b'{"n": "x"}', b"{}", b"x"]

_deep = [b'{"n": 1, "w": {"g": 4}}', b'{"w": {"g": 5}, "n.m": 2}', b'{"n": 2, "w": 3}', b'{"w": {"g": 1}, "w": {}}']


_large = [b"9223372036854775807", b"-9223372036854775808", b'{"n":9223372036854775807}', b'{"n":-9223372036854775807}']

_odd = [
    rb'{"n":1,"s":"\ud83d"}',
    rb'{"\u006e":4,"big":1e400}',
    b' {"n":1,"m":[{"n":2}],"n":-0} ',
    b'{"n":1e400}',
    b"NaN",
]

_numbers = st.sampled_from([*_small, *_large, *_odd, *_deep, *_deep])


@st.composite
def window_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Histories whose values are numbers, objects with a number, or neither."""
    history = draw(histories(max_size))
    values = draw(st.lists(_numbers | st.none(), min_size=len(history), max_size=len(history)))
    return [
        event._replace(value=value) if isinstance(event, Row) else event
        for event, value in zip(history, values, strict=True)
    ]


@st.composite
def window_configs(draw: st.DrawFn) -> WindowedAggregationConfig:
    """Any valid configuration."""
    window = draw(_windows())
    emits = ["updates"] if "unlimited" in window else ["updates", "on_time", "final", "final"]
    raw: dict[str, Any] = {
        "input": "records",
        "window": window,
        "aggregate": draw(_aggregates()),
        "emit": draw(st.sampled_from(emits)),
        "max_ahead": draw(optional_durations(10)),
    }
    if "unlimited" not in window and draw(st.booleans()):
        raw["retention"] = draw(_retentions(window))
    if raw["emit"] == "final" and draw(st.booleans()):
        raw["buffer"] = draw(buffers()) | {"when_full": draw(st.sampled_from(["shut_down", "spill"]))}
    return WindowedAggregationConfig.model_validate(raw)


@st.composite
def _windows(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["tumbling", "hopping", "session", "session", "unlimited"]))
    if kind == "unlimited":
        return {kind: True}
    size = draw(mostly(st.integers(1, 10), st.just(MAX_TIME)))
    window = {kind: f"{size}ms", "grace": draw(durations(8))}
    if kind == "session" and draw(st.booleans()):
        window["max_length"] = f"{draw(st.integers(1, 20))}ms"
    return window | {"advance": f"{draw(st.integers(-(-size // 3), size))}ms"} if kind == "hopping" else window


def _retentions(window: dict[str, Any]) -> st.SearchStrategy[str | None]:
    """A retention of at least what the window needs; None if that would be longer than the maximum."""
    least = sum(parse_duration_ms(window[name]) for name in window if name not in ("advance", "max_length"))
    if least > MAX_TIME:
        return st.none()
    return st.integers(max(20, least), max(30, least)).map(lambda ms: f"{ms}ms")


@cache
def _aggregates() -> st.SearchStrategy[dict[str, Any]]:
    numbers = st.sampled_from([True, {"field": "n"}, {"path": "w.g"}])
    several = st.dictionaries(st.sampled_from(["sum", "min", "max", "avg"]), numbers, min_size=1)
    kinds = ["sum", "min", "max", "avg"]
    named = st.dictionaries(_names, st.just("count") | _of_kinds(kinds), min_size=1, max_size=3)
    return st.just({"count": True}) | several | several.map(lambda found: {"count": True} | found) | named


_names = st.sampled_from(["total", "worst", "n", 'of "all" ü', "max", "count"])


def _of_kinds(kinds: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    sources = st.sampled_from([True, "n", "w.g", {"path": "w.g"}, {"field": "n.m"}])
    return st.builds(lambda kind, source: {kind: source}, st.sampled_from(kinds), sources)


@st.composite
def element_window_configs(draw: st.DrawFn) -> WindowedAggregationConfig:
    """Any valid configuration of windows that keep their elements."""
    window = draw(_windows())
    emits = ["updates"] if "unlimited" in window else ["updates", "on_time", "on_time", "final"]
    emit = draw(st.sampled_from([*emits, None]))
    raw: dict[str, Any] = {
        "input": "records",
        "window": window,
        "aggregate": draw(_of_elements()),
        "emit": emit,
        "every": draw(st.integers(1, 4)) if emit is None else None,
        "max_ahead": draw(optional_durations(10)),
        "evictor": draw(_evictors()),
    }
    if "unlimited" not in window and draw(st.booleans()):
        raw["retention"] = draw(_retentions(window))
    if emit == "final" and draw(st.booleans()):
        raw["buffer"] = draw(buffers()) | {"when_full": draw(st.sampled_from(["shut_down", "spill"]))}
    return WindowedAggregationConfig.model_validate(raw)


REDUCTION = {
    "reduce": {
        "function": "tidegate.operators.testing.reducers:total_and_most",
        "emits": {"n": "int64", "most": "int64"},
    }
}


@st.composite
def reducing_configs(draw: st.DrawFn) -> WindowedAggregationConfig:
    """Any valid configuration of windows whose records a function merges."""
    config = draw(element_window_configs()).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    buffer = {"buffer": {"max_keys": 3} | config["buffer"] | {"max_bytes": None}} if "buffer" in config else {}
    others = {name: value for name, value in config.items() if name != "evictor"}
    return WindowedAggregationConfig.model_validate(others | buffer | {"aggregate": REDUCTION})


@cache
def _of_elements() -> st.SearchStrategy[dict[str, Any]]:
    numbers = st.dictionaries(st.sampled_from(["sum", "min", "max", "avg"]), st.just({"field": "n"}))
    parts = st.dictionaries(st.sampled_from(["first", "last", "collect"]), st.sampled_from([True, {"field": "n"}]))
    several = st.builds(lambda *found: {"count": True} | found[0] | found[1], numbers, parts)
    named = st.dictionaries(_names, _of_kinds(["sum", "min", "max", "avg", "first", "last", "collect"]), max_size=3)
    several |= st.builds(lambda found, more: found | more, several, named)
    return st.just({"function": f"{_FUNCTIONS}:listed"}) | several | st.just({"collect": True})


@st.composite
def element_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Histories in which most records are accepted and often share a window."""
    min_size = draw(st.sampled_from([0, max_size // 3, 2 * max_size // 3]))
    max_size *= draw(lengths)
    return placed(
        draw(st.lists(mostly(_elements, records, others), min_size=min_size, max_size=max_size)), draw(epochs)
    )


@st.composite
def mergeable_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Histories of elements whose values can be merged, with an occasional one that cannot."""
    history = draw(element_histories(max_size))
    values = draw(st.lists(_mergeable, min_size=len(history), max_size=len(history)))
    return [
        event._replace(value=value) if isinstance(event, Row) else event
        for event, value in zip(history, values, strict=True)
    ]


_totals = [b'{"n":%d,"most":%d}' % (n, n) for n in (1, 2, 4, 8, 16, -3, 2**63 - 1, -(2**63))]
_mergeable = mostly(
    st.sampled_from([*_totals, *_totals, b'{"n":5}', b'{"most":3}', b"{}", b' {"most":null,"n": 7,"x":[1]} ']),
    st.sampled_from([None, b"x", b"[1]", b'{"n":1.5}', b'{"n":1,"most":"2"}', b'{"n":9223372036854775808}']),
)

_ns = (b"1", b"2", b"3", b"6", b"-4", b"2.50", b" 10")
_of_n = st.sampled_from([b'{"n":%s,"w":{"g":%s}}' % (n, n) for n in _ns] + [b'{"n":%s}' % n for n in _ns] + _large[2:])

_elements = st.tuples(st.sampled_from([b"a", b"a", b"b", b"a longer key"]), _of_n, soon, headers)


@st.composite
def _evictors(draw: st.DrawFn) -> dict[str, Any]:
    when = draw(st.sampled_from([{}, {"when": "after"}]))
    kind = draw(st.sampled_from(["count", "time", "delta", "function", "both"]))
    if kind == "both":
        before, after = (f"{_FUNCTIONS}:{draw(st.sampled_from(_MASKS))}" for _ in range(2))
        return {"function": {"before": before, "after": after}}
    return {kind: draw(_LIMITS[kind])} | when


_FUNCTIONS = "tidegate.operators.testing.evictors"

_MASKS = ("even", "multiple_of_3", "older_half")

_DISTANCES = st.sampled_from([{"field": "n"}, {"field": "n"}, {"path": "w.g"}, f"{_FUNCTIONS}:length_apart"])

_LIMITS: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(0, 4),
    "time": durations(8),
    "delta": st.fixed_dictionaries({"threshold": st.sampled_from([-1, 0, 0.5, 2, 5.25]), "distance": _DISTANCES}),
    "function": st.sampled_from(_MASKS).map(lambda name: f"{_FUNCTIONS}:{name}"),
}
