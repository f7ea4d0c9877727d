"""Hypothesis strategies for joins and the tables that they read."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidegate.contracts.event_time import ALWAYS, MAX_TIME
from tidegate.contracts.records import Row
from tidegate.operators.stream_table_join.config import StreamTableJoinConfig
from tidegate.operators.table_history.strategies import table_history_configs
from tidegate.operators.testing.laws import Event, Table
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

_joinable = st.tuples(st.sampled_from([b"a", b"a", b"", b"a longer key", None]), json_values, soon, headers)

_table_records = mostly(_joinable, records)

_floors = mostly(st.none(), soon)

_table_windows = st.sampled_from([None, None, "headers", "headers", "headers"])


@st.composite
def stream_table_join_configs(draw: st.DrawFn) -> StreamTableJoinConfig:
    """Any valid configuration."""
    raw: dict[str, Any] = {
        "input": "records",
        "table": "table",
        "join": draw(st.sampled_from(["inner", "left"])),
        "max_ahead": draw(optional_durations(10)),
        "joiner": draw(st.sampled_from([None, None, "tidegate.operators.testing.joiners:dashed"])),
        "windows": draw(st.sampled_from([None, *all_windows, "headers"])),
        "before_history": "join",
    }
    if grace := draw(st.none() | mostly(st.integers(0, 12), st.just(MAX_TIME))):
        raw |= {"grace": f"{grace}ms", "wait_for_table": draw(optional_durations(5))}
    elif grace == 0:
        raw["grace"] = 0
    return StreamTableJoinConfig.model_validate(raw)


@cache
@st.composite
def _tables(draw: st.DrawFn, epoch: int) -> Table:
    """A table of a few records with offsets of their own."""
    drawn = placed(draw(up_to(12, _table_records)), epoch)
    rows = [event._replace(headers=b"") if isinstance(event, Row) else event for event in drawn]
    windows = draw(_table_windows)
    named = draw(windowed(rows)) if windows else rows
    config = draw(table_history_configs()).model_copy(update={"windows": windows or "none"})
    open_until = draw(st.just(ALWAYS) | st.integers(epoch - 1, epoch + 30))
    floor = draw(_floors) if config.history_retention is not None else None
    kept_from = None if floor is None else epoch + floor
    return Table(config, tuple(row for row in named if isinstance(row, Row)), open_until, floor=kept_from)


@st.composite
def join_histories(draw: st.DrawFn, max_size: int = 24) -> list[Event]:
    """A table, then mostly records; occasionally an advance, a flush or a new table."""
    epoch = draw(epochs)
    stream = placed(draw(up_to(draw(lengths) * max_size, _events(epoch))), epoch)
    return [draw(_tables(epoch)), *(draw(windowed(stream)) if draw(st.booleans()) else stream)]


@cache
def _events(epoch: int) -> st.SearchStrategy[Any]:
    return mostly(_joinable, records, others, _tables(epoch))
