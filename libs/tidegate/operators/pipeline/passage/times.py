"""Where the steps of a pipeline stand, as rows of its changelog.

These rows belong to no step: `step` is null and `key` is the name of the step that the row is about. `timestamp` is its
stream time, `offset` the number of rows that it has received. So a state is restored from its rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from tidegate.contracts.event_time import NO_STREAM_TIME


class StepTime(NamedTuple):
    """Where a stateful step of a pipeline stands: its stream time, and how many rows it has received."""

    stream_time: int
    received: int


Times = Mapping[str, StepTime]
UNBEGUN = StepTime(NO_STREAM_TIME, 0)


def checksum(time: StepTime) -> int:
    """Return a checksum of where a step stands; 0 for a step that has not begun."""
    return 0 if time == UNBEGUN else crc32(b"%d %d" % time)


def moved_times(before: Times, after: Times, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Return the rows of the steps that stand elsewhere after a batch: those that say so, and those that lead back."""
    moved = [name for name in after if after[name] != before[name]]
    both = _rows([(name, times[name]) for times in (after, before) for name in moved], schema)
    return both.slice(0, len(moved)), both.slice(len(moved))


def time_rows(times: Times, schema: pa.Schema) -> pa.Table:
    """Return the changelog rows that say where these steps stand."""
    return _rows([*times.items()], schema)


def _rows(stands: Sequence[tuple[str, StepTime]], schema: pa.Schema) -> pa.Table:
    columns = {
        "op": pa.array(["put"] * len(stands), pa.string()),
        "key": pa.array([name.encode() for name, _ in stands], pa.binary()),
        "timestamp": pa.array([time.stream_time for _, time in stands], pa.int64()),
        "offset": pa.array([time.received for _, time in stands], pa.int64()),
    }
    missing = [field for field in schema if field.name not in columns]
    columns |= {field.name: pa.nulls(len(stands), field.type) for field in missing}
    return pa.table([columns[name] for name in schema.names], schema)


def times_in(rows: pa.Table) -> dict[str, StepTime]:
    """Return where the steps stand of which changelog rows say so; the last row of a step counts."""
    found = rows.filter(rows["step"].is_null())
    names, times, received = (found[name].to_pylist() for name in ("key", "timestamp", "offset"))
    steps = (name.decode() for name in names)
    return {name: StepTime(*stands) for name, *stands in zip(steps, times, received, strict=True)}
