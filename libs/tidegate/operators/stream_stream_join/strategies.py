"""Hypothesis strategies for stream-stream joins."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.records import Row
from tidegate.operators.stream_stream_join.config import StreamStreamJoinConfig
from tidegate.operators.testing.laws import Event
from tidegate.operators.testing.strategies import (
    all_windows,
    epochs,
    headers,
    json_values,
    lengths,
    mostly,
    optional_durations,
    others,
    placed,
    records,
    soon,
    up_to,
    windowed,
)

_durations = mostly(st.integers(0, 8), st.sampled_from([MAX_TIME // 2, MAX_TIME // 4]))

_joinable = st.tuples(st.sampled_from([b"a", b"a", b"a longer key", b"another long key"]), json_values, soon, headers)

_events = mostly(mostly(_joinable, records), others)

_ports = st.sampled_from([0, 1])


@st.composite
def stream_stream_join_configs(draw: st.DrawFn) -> StreamStreamJoinConfig:
    """Any valid configuration."""
    times = {name: f"{draw(_durations)}ms" for name in ("before", "after", "grace")}
    raw: dict[str, Any] = {
        "input": "records",
        "right": "right",
        "join": draw(st.sampled_from(["inner", "left", "outer", "outer"])),
        "max_ahead": draw(optional_durations(10)),
        "windows": draw(st.sampled_from([None, None, *all_windows])),
    }
    return StreamStreamJoinConfig.model_validate(raw | times)


@st.composite
def two_streams(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """Records of two streams, mostly with a partner; occasionally an advance, a flush or a clock."""
    history = placed(draw(up_to(draw(lengths) * max_size, _events)), draw(epochs))
    named = draw(windowed(history)) if draw(st.booleans()) else history
    return [event._replace(port=draw(_ports)) if isinstance(event, Row) else event for event in named]
