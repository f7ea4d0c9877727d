"""Spark SQL views of a stream-stream join."""

from __future__ import annotations

from typing import Any

from tidegate.operators.stream_stream_join.config import StreamStreamJoinRules
from tidegate.operators.views import (
    as_time,
    create_view,
    register_emissions,
    shown_columns,
    window_columns,
    window_names,
)


def register(spark: Any, name: str, config: StreamStreamJoinRules) -> list[str]:
    """Create the view `<name>_buffer` of the records that are held, one row each. Return its name.

    Columns: partition, side (left, right), key, window_start and window_end (where the input is windowed), value,
    headers, timestamp, offset, waits (whether the record is emitted alone if it finds no partner), event_time.

    `<name>_emissions` has one more column: status (matched, unmatched).
    """
    register_emissions(spark, name, config, *window_names(config), "cause AS status")
    return [create_view(spark, f"{name}_buffer", _buffer(name, config))]


def _buffer(name: str, config: StreamStreamJoinRules) -> str:
    """Return the query of the newest row of each slot that is held."""
    key, value = shown_columns(config)
    windows = window_columns(config)
    newest = f"""SELECT *, row_number() OVER (
                     PARTITION BY partition, side, key{windows}, timestamp, offset ORDER BY batch DESC, seq DESC
                 ) AS age FROM {name}_log WHERE kind = 'state'"""
    return f"""SELECT partition, side, {key} AS key{windows}, {value} AS value, headers, timestamp, offset, waits,
                      {as_time("timestamp")} AS event_time
               FROM ({newest}) WHERE age = 1 AND op = 'put'"""
