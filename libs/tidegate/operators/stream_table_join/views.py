"""Spark SQL views of a stream-table join."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.flow import later
from tidegate.operators.stream_table_join.config import StreamTableJoinRules
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
    "matched": "the table has a version that was valid at the time of the record",
    "unmatched": "the table has no version for the time of the record, and a left join emits such records too",
    "late": "the record was behind stream time by more than the grace, so it was joined at once",
    "expired": "the table no longer has the versions of that time, and a left join emits such records too",
}
"""The rule behind each cause of an emission."""


def register(spark: Any, name: str, config: StreamTableJoinRules) -> list[str]:
    """Create the view `<name>_buffer` of the records that wait, one row each. Return its name.

    Columns: partition, key, window_start and window_end (where the input is windowed), value, headers, timestamp,
    offset, arrived (clock of the batch that read it, ms), event_time, due (the stream time at which it is joined, once
    the table has caught up).

    `<name>_emissions` has two more columns: status (matched, unmatched, late, expired), and valid_from of the version
    that the record was joined to.
    """
    windows, met = window_columns(config), ("cause AS status", f"{as_time('valid_from')} AS valid_from")
    register_emissions(spark, name, config, *window_names(config), *met)
    key, value = shown_columns(config)
    due = f"timestamp + {config.grace or 0}"
    newest = "row_number() OVER (PARTITION BY partition, key, timestamp, offset ORDER BY batch DESC, seq DESC)"
    create_view(
        spark,
        f"{name}_buffer",
        f"""SELECT partition, {key} AS key{windows}, {value} AS value, headers, timestamp, offset, arrived,
                   {as_time("timestamp")} AS event_time, {as_time(due)} AS due
            FROM (SELECT *, {newest} AS age FROM {name}_log WHERE kind = 'state')
            WHERE age = 1 AND op = 'put'""",
    )
    return [f"{name}_buffer"]


def held(rows: pa.Table, config: StreamTableJoinRules) -> pa.Table:
    """Return the rows of waiting records with `due`, the stream time at which each is joined."""
    due = later(rows["timestamp"].to_numpy().astype(np.int64), config.grace or 0)
    return rows.append_column("due", pa.array(due).cast(TIME))
