"""Hypothesis strategies for histories and configurations. May import: hypothesis, contracts, operators, testing.

Small alphabets and small numbers, so that keys meet, times tie and bounds are hit; offsets have gaps, as in a
compacted topic.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.testing.laws import Advance, Event, Flush

FIRST_OFFSET, GAP = 5, 3

keys = st.sampled_from([b"a", b"b", b"ab", b"", b"\x00", b"\xff\x00\xfe", b"a longer key than the others", None])
values = st.sampled_from([b"", b"x", b"yy", b"zzz", b"a value of more than thirty-two bytes", None])
timestamps = st.one_of(st.integers(0, 20), st.sampled_from([-1, 0, 7, 1_000, 2**62, NO_TIMESTAMP]))
headers = st.sampled_from([b"", b"", b"\x02\x02h\x02v"])
cuts = st.sets(st.integers(0, 30))

_records = st.tuples(keys, values, timestamps, headers)
_others = st.sampled_from([*(Advance(ms) for ms in range(10)), Flush(), Flush()])
_events = st.one_of(*[_records] * 9, _others)


@st.composite
def histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Records mostly; an advance or a flush now and then."""
    drawn = draw(st.lists(_events, max_size=max_size))
    return [
        event if isinstance(event, Advance | Flush) else Row(event[0], event[1], event[2], _offset(at), event[3])
        for at, event in enumerate(drawn)
    ]


def _offset(at: int) -> int:
    return FIRST_OFFSET + GAP * at


def _durations(largest_ms: int) -> st.SearchStrategy[str]:
    return st.integers(0, largest_ms).map(lambda ms: f"{ms}ms")


@st.composite
def suppression_configs(draw: st.DrawFn) -> SuppressionConfig:
    """Any configuration that is accepted."""
    raw: dict[str, Any] = {
        "input": "records",
        "timer": draw(st.sampled_from(["first_update", "last_update"])),
        "bytes_of": draw(st.sampled_from(["value", "record"])),
        "max_lateness": draw(st.none() | _durations(10)),
        "max_ahead": draw(st.none() | _durations(10)),
    }
    if buffer := draw(st.none() | _buffers()):
        raw["buffer"] = buffer
    if not buffer or buffer["when_full"] == "spill" or draw(st.booleans()):
        raw["until"] = {"time_limit": draw(_durations(12))}
    return SuppressionConfig.model_validate(raw)


@st.composite
def _buffers(draw: st.DrawFn) -> dict[str, Any]:
    bounds = draw(st.sampled_from([("max_keys",), ("max_bytes",), ("max_keys", "max_bytes")]))
    limits = {"max_keys": st.integers(0, 4), "max_bytes": st.integers(0, 40)}
    when_full = draw(st.sampled_from(["emit", "emit", "shut_down", "shut_down", "spill"]))
    return {name: draw(limits[name]) for name in bounds} | {"when_full": when_full}


@st.composite
def table_history_configs(draw: st.DrawFn) -> TableHistoryConfig:
    """Any configuration that is accepted: mostly a history."""
    kept = draw(st.sampled_from(["history", "history", "history", "latest"]))
    raw: dict[str, Any] = {"input": "records", "max_ahead": draw(st.none() | _durations(10))}
    raw |= {"versions": "latest"} if kept == "latest" else {"history_retention": draw(_durations(15))}
    return TableHistoryConfig.model_validate(raw)
