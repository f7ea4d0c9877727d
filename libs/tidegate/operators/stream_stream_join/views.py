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
    windows = window_columns(config)
    register_emissions(spark, name, config, *window_names(config), "cause AS status")
    key, value = shown_columns(config)
    slot = f"partition, side, key{windows}, timestamp, offset"
    create_view(
        spark,
        f"{name}_buffer",
        f"""SELECT partition, side, {key} AS key{windows}, {value} AS value, headers, timestamp, offset, waits,
                   {as_time("timestamp")} AS event_time
            FROM (SELECT *, row_number() OVER (PARTITION BY {slot} ORDER BY batch DESC, seq DESC) AS age
                  FROM {name}_log WHERE kind = 'state')
            WHERE age = 1 AND op = 'put'""",
    )
    return [f"{name}_buffer"]
