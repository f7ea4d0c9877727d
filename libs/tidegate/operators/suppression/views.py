"""Spark SQL views of a suppression buffer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.suppression.config import SuppressionRules
from tidegate.operators.views import (
    TIME,
    as_time,
    create_view,
    register_emissions,
    shown_columns,
    window_columns,
    window_names,
)

CAUSES = {
    "time": "stream time has passed the time limit of the key, counted from `place` of its held record",
    "keys": "the buffer held more keys than `max_keys`, and this one was the first in its order",
    "bytes": "the buffer held more than `max_bytes`, and this record was the first in its order",
    "flush": "a flush emitted everything that was held",
    "idle": "the input was idle, so stream time was advanced until the record was due",
    "window_close": "stream time has passed the end of the window and its grace: this is its only result",
}
"""The rule behind each cause of an emission."""


def register(spark: Any, name: str, config: SuppressionRules) -> list[str]:
    """Create the view `<name>_buffer` of what is held, one row per key, or per key and window. Return its name.

    Columns: partition, key, window_start and window_end (where the input is windowed), value, headers, timestamp (of
    the last update), place (the time by which emissions are ordered), arrival (offset of the record that opened the
    slot), offset (of the last update), held_since (place as a time). Windows closed by a flush are no longer held.
    """
    key, value = shown_columns(config)
    windows = window_columns(config)
    register_emissions(spark, name, config, *window_names(config))
    newest = f"row_number() OVER (PARTITION BY partition, key{windows} ORDER BY batch DESC, seq DESC)"
    create_view(
        spark,
        f"{name}_buffer",
        f"""SELECT partition, {key} AS key{windows}, {value} AS value, headers, timestamp, place, arrival, offset,
                   {as_time("place")} AS held_since
            FROM (SELECT *, {newest} AS age FROM {name}_log WHERE kind = 'state')
            WHERE age = 1 AND op = 'put' AND arrival >= 0""",
    )
    return [f"{name}_buffer"]


def held(rows: pa.Table, config: SuppressionRules) -> pa.Table:
    """Return the held records among the newest rows of slots, with `held_since`. A flushed window holds none."""
    records = rows.filter(pc.greater_equal(rows["arrival"], 0))
    return records.append_column("held_since", records["place"].cast(TIME))
