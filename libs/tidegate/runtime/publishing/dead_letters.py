"""Refused records as they are written to Kafka. Pure.

A dead letter, and a record that is sent back, has key, value and headers of the record that was refused, byte for byte.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.event_timestamps import REASONS

NO_TIMESTAMP = -1
"""Kafka's for a record that has none."""

_COLUMNS = ["key", "value", "headers", "timestamp", "offset"]


def as_dead_letters(late: pa.Table, rejected: pa.Table, *, times_in_values: bool) -> pa.Table:
    """The late and the rejected rows of one partition and batch, in the order of their offsets.

    Columns key, value, headers, timestamp (as it is written), offset, reason ("late: ...", "rejected: ...").
    """
    letters = pa.concat_tables(
        [
            _letters(late, "late", late["timestamp"]),
            _letters(rejected, "rejected", written_timestamps(rejected, times_in_values=times_in_values)),
        ]
    )
    return letters.sort_by("offset")


def written_timestamps(rejected: pa.Table, *, times_in_values: bool) -> pa.ChunkedArray:
    """The timestamps that rejected records are written with: those they had in Kafka, or none.

    Where event times are fields of the values, a row has that of Kafka only if no time could be read. One that was read
    may be nonsense, which no topic would take.
    """
    none = pa.scalar(NO_TIMESTAMP, pa.int64())
    timestamps = pc.max_element_wise(rejected["timestamp"], none)
    if not times_in_values:
        return timestamps
    own = pc.is_in(rejected["cause"].cast(pa.string()), pa.array(REASONS))
    return pc.if_else(own, timestamps, none)


def _letters(rows: pa.Table, kind: str, timestamps: pa.ChunkedArray) -> pa.Table:
    rows = rows.append_column("reason", pc.binary_join_element_wise(kind, rows["cause"].cast(pa.string()), ": "))
    place = rows.column_names.index("timestamp")
    return rows.set_column(place, "timestamp", timestamps).select([*_COLUMNS, "reason"])
