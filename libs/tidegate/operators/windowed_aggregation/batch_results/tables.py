"""The effects of a batch on windows, as Arrow tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import FlatRecords, Payloads, flat_records
from tidegate.kernels.touched import OPENED, REMOVED
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import Unaccepted
from tidegate.operators.result_tables import EMISSIONS as RECORD_EMISSIONS
from tidegate.operators.result_tables import changes_schema, dictionary_column, ops
from tidegate.operators.windowed_aggregation import step
from tidegate.operators.windowed_aggregation.aggregates import Plan, Writing, width
from tidegate.operators.windowed_aggregation.step import (
    MERGED,
    Outcome,
    State,
)
from tidegate.operators.windowed_aggregation.window_times import SESSION, Rules

WINDOW_COLUMNS = (pa.field("arrival", pa.int64()), pa.field("phase", pa.int8()), pa.field("words", pa.binary()))
"""Offset of the record that opened the window; phase: pending, emitted or closed; words of its aggregates."""

SLOT = ("key", "window_start", "window_end")

_BOUNDS = (pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64()))
EMISSIONS = pa.schema([*RECORD_EMISSIONS, *_BOUNDS])
NO_EMISSIONS = EMISSIONS.empty_table()
CHANGES = changes_schema([*_BOUNDS, *WINDOW_COLUMNS])
_NO_CHANGES = CHANGES.empty_table()

NO_BATCH = flat_records(Records.from_rows([]))
_CAUSES = pa.array(step.CAUSES)


def emissions(state: State, batch: FlatRecords, outcome: Outcome, writing: Writing) -> pa.Table:
    """Return the results in order, with their causes; a null value takes a result back."""
    count = outcome.tally[step.EMITTED_COUNT]
    if count == 0:
        return NO_EMISSIONS
    slots, causes = outcome.slot[:count], outcome.cause[:count]
    found = writing.results(outcome.words[: count * width(writing.plan)].reshape(count, -1))
    taken_back = pa.array(causes == MERGED)
    rows = record_columns(state.windows.versions.payloads, batch, ~slots)
    return pa.table(
        rows
        | {"value": pc.if_else(taken_back, pa.scalar(None, pa.binary()), found)}
        | {"timestamp": outcome.timestamp[:count], "offset": outcome.offset[:count]}
        | {"cause": dictionary_column(causes, _CAUSES)}
        | {"window_start": state.start[slots], "window_end": state.end[slots]},
        EMISSIONS,
    )


def late(stored: Payloads, batch: FlatRecords, unaccepted: Unaccepted, rules: Rules) -> pa.Table:
    """Return the late records, with the smallest timestamp whose window was still open."""
    rows = late_and_rejected.late(stored, batch, unaccepted, 0, "its windows are closed")
    if not rows.num_rows:
        return rows
    stream_time = rows["bound"].to_numpy()
    at = rows.schema.get_field_index("bound")
    return rows.set_column(at, rows.schema.field(at), pa.array(_bound(stream_time, rules)))


def _bound(stream_time: Array, rules: Rules) -> Array:
    if rules.kind == SESSION:
        return np.asarray(stream_time - rules.grace - rules.size)
    first_end = stream_time - rules.grace + 1
    return np.asarray(np.maximum(-((rules.size - first_end) // rules.advance) * rules.advance, 0))


def changes(state: State, batch: FlatRecords, slots: Array, writing: Writing) -> pa.Table:
    """Return the changelog of the windows: `put` with all columns if held, `delete` with key and bounds if not."""
    if len(slots) == 0:
        return _NO_CHANGES
    slots = slots.astype(np.int64)
    gone = state.windows.status[slots] == REMOVED
    held = state.words.whole.reshape(-1, width(writing.plan))[slots]
    rows = record_columns(state.windows.versions.payloads, batch, ~slots, only_key=gone)
    no_value = pa.scalar(None, pa.binary())
    return pa.table(
        {"op": ops(gone)}
        | rows
        | {"value": pc.if_else(pa.array(gone), no_value, writing.results(held))}
        | {"window_start": state.start[slots], "window_end": state.end[slots]}
        | {"arrival": pa.array(state.windows.order.arrival[slots], mask=gone)}
        | {"phase": pa.array(state.windows.phase[slots].astype(np.int8), mask=gone)}
        | {"words": pc.if_else(pa.array(gone), no_value, _as_bytes(held))},
        CHANGES,
    )


def undo(state: State, outcome: Outcome, changed: Array, plan: Plan) -> pa.Table:
    """Return the changelog that leads back to the state before the batch.

    It has a `put` of each window as it was before the batch, and a `delete` of each that was not there. `changed`:
    positions in the touched list. The window touched last comes first, because a window may be opened with the bounds
    of one that was removed before it.
    """
    if len(changed) == 0:
        return _NO_CHANGES
    changed, before = changed[::-1], outcome.before
    slots = outcome.touched[changed].astype(np.int64)
    opened = state.windows.status[slots] == OPENED
    words_before = before.words[: outcome.tally[step.TOUCHED] * width(plan)].reshape(-1, width(plan))[changed]
    return pa.table(
        {"op": ops(opened)}
        | record_columns(state.windows.versions.payloads, NO_BATCH, ~slots)
        | {"value": pa.nulls(len(slots), pa.binary())}
        | {name: pa.array(getattr(before, name)[changed], mask=opened) for name in ("timestamp", "offset")}
        | {"window_start": state.start[slots], "window_end": state.end[slots]}
        | {"arrival": pa.array(state.windows.order.arrival[slots], mask=opened)}
        | {"phase": pa.array(before.phase[changed], mask=opened)}
        | {"words": pc.if_else(pa.array(opened), pa.scalar(None, pa.binary()), _as_bytes(words_before))},
        CHANGES,
    )


def _as_bytes(held: Array) -> pa.Array:
    fixed = pa.binary(held.itemsize * held.shape[1])
    buffers = [None, pa.py_buffer(np.ascontiguousarray(held).tobytes())]
    return pa.FixedSizeBinaryArray.from_buffers(fixed, len(held), buffers).cast(pa.binary())
