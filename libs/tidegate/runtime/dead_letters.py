"""Refused records as they are written to Kafka. Pure. May import: pyarrow, contracts.

A dead letter, and a record that is sent back, has key, value and headers of the record that was refused, byte for byte.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

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

    Where event times are fields of the values, the log does not have those of Kafka, and the field may be what was
    rejected: a time of nonsense that no topic would take.
    """
    timestamps, none = rejected["timestamp"], pa.scalar(NO_TIMESTAMP, pa.int64())
    if times_in_values:
        return pa.chunked_array([pa.repeat(none, len(timestamps))])
    return pc.max_element_wise(timestamps, none)


def _letters(rows: pa.Table, kind: str, timestamps: pa.ChunkedArray) -> pa.Table:
    rows = rows.append_column("reason", pc.binary_join_element_wise(kind, rows["cause"].cast(pa.string()), ": "))
    place = rows.column_names.index("timestamp")
    return rows.set_column(place, "timestamp", timestamps).select([*_COLUMNS, "reason"])
