"""The effects of a batch on windows and their elements, as Arrow tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import flat_records
from tidegate.kernels.touched import OPENED, REMOVED
from tidegate.operators.result_tables import changes_schema, dictionary_column, ops
from tidegate.operators.windowed_aggregation.elements.step import (
    CAUSES,
    WINDOW,
    Outcome,
    State,
)
from tidegate.operators.windowed_aggregation.step import EMITTED_COUNT
from tidegate.operators.windowed_aggregation.tables import EMISSIONS

COLUMNS = (
    pa.field("arrival", pa.int64()),
    pa.field("opened", pa.int64()),
    pa.field("since", pa.int64()),
    pa.field("phase", pa.int8()),
)
"""`arrival`: an element's offset, or -1 in the window's own row. The others are null in an element's row.

`opened`: offset of the record that opened the window; `since`: records since it fired; `phase`: pending, emitted,
closed.
"""

SLOT = ("key", "window_start", "window_end", "arrival")

_BOUNDS = (pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64()))
CHANGES = changes_schema([*_BOUNDS, *COLUMNS])

_CAUSES = pa.array(CAUSES)
_NO_BATCH = flat_records(Records.from_rows([]))


def keys(state: State, slots: Array) -> pa.ChunkedArray:
    """Return the keys of those windows."""
    return record_columns(state.windows.versions.payloads, _NO_BATCH, ~slots)["key"]


def emissions(state: State, outcome: Outcome, values: pa.ChunkedArray) -> pa.Table:
    """Return the results in order, with their values and causes."""
    count = outcome.tally[EMITTED_COUNT]
    if count == 0:
        return EMISSIONS.empty_table()
    slots = outcome.slot[:count]
    return pa.table(
        record_columns(state.windows.versions.payloads, _NO_BATCH, ~slots)
        | {"value": values}
        | {"timestamp": outcome.timestamp[:count], "offset": outcome.offset[:count]}
        | {"cause": dictionary_column(outcome.cause[:count], _CAUSES)}
        | {"window_start": state.start[slots], "window_end": state.end[slots]},
        EMISSIONS,
    )


def changes(state: State, windows: Array, elements: Array) -> pa.Table:
    """Return the changelog of those windows, then of those elements.

    A `put` has everything; a `delete` has only the columns of its slot.
    """
    tables = []
    if len(windows):
        slots = windows.astype(np.int64)
        gone = state.windows.status[slots] == REMOVED
        since = pa.array(state.content.since[slots], mask=gone)
        phase = pa.array(state.windows.phase[slots].astype(np.int8), mask=gone)
        tables.append(_windows(state, slots, gone, {"since": since, "phase": phase}))
    if len(elements):
        slots = elements.astype(np.int64)
        tables.append(_elements(state, slots, state.elements.status[slots] == REMOVED))
    return pa.concat_tables(tables) if tables else CHANGES.empty_table()


def undo(state: State, outcome: Outcome, changed: Array, elements: Array) -> pa.Table:
    """Return the changelog that leads back to the state before the batch.

    It has a `put` of what was there before the batch (windows as they were then), and a `delete` of what was not.
    `changed`: positions in the touched list. Elements never change, and stay intact until the batch is settled. A
    window's value stays until the new values are kept.
    """
    changed = changed[::-1]  # a window may be opened with the bounds of one that was removed before it
    windows, elements = outcome.touched[changed].astype(np.int64), elements.astype(np.int64)
    opened = state.windows.status[windows] == OPENED
    before = {name: pa.array(column[changed], mask=opened) for name, column in outcome.before._asdict().items()}
    before["phase"] = before["phase"].cast(pa.int8())
    tables = []
    if len(windows):
        tables.append(_windows(state, windows, opened, before))
    if len(elements):
        tables.append(_elements(state, elements, state.elements.status[elements] == OPENED))
    return pa.concat_tables(tables) if tables else CHANGES.empty_table()


def _windows(state: State, slots: Array, gone: Array, columns: dict[str, pa.Array]) -> pa.Table:
    """Return the rows of windows: deletes for those that are gone, puts for others.

    `columns`: those of a window's columns that change.
    """
    return pa.table(
        {"op": ops(gone)}
        | record_columns(state.windows.versions.payloads, _NO_BATCH, ~slots, only_key=gone)
        | {"window_start": state.start[slots], "window_end": state.end[slots]}
        | {"arrival": np.full(len(slots), WINDOW)}
        | {"opened": pa.array(state.windows.order.arrival[slots], mask=gone)}
        | columns,
        CHANGES,
    )


def _elements(state: State, slots: Array, gone: Array) -> pa.Table:
    windows = state.elements.window[slots].astype(np.int64)
    nothing = pa.nulls(len(slots), pa.int64())
    return pa.table(
        {"op": ops(gone)}
        | record_columns(state.elements.payloads, _NO_BATCH, ~slots, only_key=gone)
        | {"key": keys(state, windows)}
        | {"window_start": state.start[windows], "window_end": state.end[windows]}
        | {"arrival": state.elements.payloads.offset[slots]}
        | {"opened": nothing, "since": nothing, "phase": pa.nulls(len(slots), pa.int8())},
        CHANGES,
    )
