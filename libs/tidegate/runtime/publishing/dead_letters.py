"""Late and rejected records in the form in which they are written to Kafka. Pure functions.

A dead letter, like a redriven record, has the key, value and headers of the original record, byte for byte.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.log_schema import STEP_TOPIC
from tidegate.operators.json_values.event_timestamps import REASONS

NO_TIMESTAMP = -1
"""Kafka's timestamp of a record that has none."""

_COLUMNS = ["key", "value", "headers", "timestamp", "offset"]


def as_dead_letters(late: pa.Table, rejected: pa.Table, *, times_in_values: bool) -> pa.Table:
    """Return the late and rejected rows of one partition and batch as dead letters, in order of their offsets.

    Columns key, value, headers, timestamp (as it is written), offset, cause, reason ("late: " or "rejected: " and the
    cause). A row that a step within a pipeline refused has the offset of the record that caused it, and its reason
    names the step. Those of several input topics follow each other by topic, which is one more column.
    """
    letters = pa.concat_tables(
        [
            _letters(late, "late", late["timestamp"]),
            _letters(rejected, "rejected", written_timestamps(rejected, times_in_values=times_in_values)),
        ]
    )
    # rule: output-repeatable/dead-letters
    return letters.sort_by([(name, "ascending") for name in ("topic", "offset") if name in letters.column_names])


def written_timestamps(rejected: pa.Table, *, times_in_values: bool) -> pa.ChunkedArray:
    """Return the timestamps to write rejected records with: those that they had in Kafka, or NO_TIMESTAMP.

    `times_in_values`: event times are fields of the values. A row then has the timestamp of Kafka only if no time could
    be read from its value. A time that was read may be nonsense that a topic refuses, so that it is not written.
    """
    none = pa.scalar(NO_TIMESTAMP, pa.int64())
    timestamps = pc.max_element_wise(rejected["timestamp"], none)
    if not times_in_values:
        return timestamps
    own = pc.is_in(rejected["cause"].cast(pa.string()), pa.array(REASONS))
    return pc.if_else(own, timestamps, none)


def _letters(rows: pa.Table, kind: str, timestamps: pa.ChunkedArray) -> pa.Table:
    causes = rows["cause"].cast(pa.string())
    columns = {name: rows[name] for name in _COLUMNS}
    if "source" in rows.column_names:
        columns["offset"] = pc.if_else(of_steps(rows), rows["source"], rows["offset"])
        named = pc.binary_join_element_wise("step ", rows["step"].cast(pa.string()), "")
        kinds = pc.if_else(of_steps(rows), pc.binary_join_element_wise(kind, named, ": "), kind)
        reasons = pc.binary_join_element_wise(kinds, causes, ": ")
    else:
        reasons = pc.binary_join_element_wise(kind, causes, ": ")
    if "origin_topic" in rows.column_names:
        columns |= {"topic": rows["origin_topic"].cast(pa.string()), "offset": rows["origin_offset"]}
    return pa.table(columns | {"timestamp": timestamps, "cause": causes, "reason": reasons})


def of_steps(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows of a pipeline were refused by a step within it; they are no records of the input."""
    return pc.starts_with(pc.coalesce(rows["topic"].cast(pa.string()), pa.scalar("")), STEP_TOPIC)
