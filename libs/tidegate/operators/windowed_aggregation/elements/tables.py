"""The effects of a batch on windows and their elements, as Arrow tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import flat_records
from tidegate.kernels.touched import CHANGED, OPENED, REMOVED
from tidegate.operators.result_tables import changes_schema, dictionary_column, ops
from tidegate.operators.windowed_aggregation.batch_results.tables import EMISSIONS, NO_EMISSIONS
from tidegate.operators.windowed_aggregation.elements.recording import (
    CAUSES,
    WINDOW,
    Before,
    Outcome,
    State,
)
from tidegate.operators.windowed_aggregation.step import EMITTED_COUNT
from tidegate.operators.windowed_aggregation.window_times import SESSION, Rules

COLUMNS = (
    pa.field("arrival", pa.int64()),
    pa.field("opened", pa.int64()),
    pa.field("since", pa.int64()),
    pa.field("phase", pa.int8()),
)
"""`arrival`: an element's offset, or -1 in the window's own row. The others are null in an element's row.

A session's element has its timestamp as both bounds, so that its row stays when sessions are merged.

`opened`: offset of the record that opened the window; `since`: records since it fired; `phase`: pending, emitted,
closed.
"""

SLOT = ("key", "window_start", "window_end", "arrival")

_BOUNDS = (pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64()))
CHANGES = changes_schema([*_BOUNDS, *COLUMNS])
_NO_CHANGES = CHANGES.empty_table()

_CAUSES = pa.array(CAUSES)
_NO_BATCH = flat_records(Records.from_rows([]))


def keys(state: State, slots: Array) -> pa.ChunkedArray:
    """Return the keys of those windows."""
    return record_columns(state.windows.versions.payloads, _NO_BATCH, ~slots)["key"]


def emissions(state: State, outcome: Outcome, values: pa.ChunkedArray) -> pa.Table:
    """Return the results in order, with their values and causes."""
    count = outcome.tally[EMITTED_COUNT]
    if count == 0:
        return NO_EMISSIONS
    slots = outcome.slot[:count]
    return pa.table(
        record_columns(state.windows.versions.payloads, _NO_BATCH, ~slots)
        | {"value": values}
        | {"timestamp": outcome.timestamp[:count], "offset": outcome.offset[:count]}
        | {"cause": dictionary_column(outcome.cause[:count], _CAUSES)}
        | {"window_start": outcome.start[:count], "window_end": outcome.end[:count]},
        EMISSIONS,
    )


def changes(state: State, outcome: Outcome, changed: Array, elements: Array, rules: Rules) -> pa.Table:
    """Return the changelog of a batch: windows, then elements.

    A `put` has everything; a `delete` has only the columns of its slot. `changed`: positions in the touched list. A
    session whose bounds changed gets both.
    """
    windows = outcome.touched[changed].astype(np.int64)
    status = state.windows.status[windows]
    left = (status == REMOVED) | _moved(state, outcome.before, changed, windows)
    return _together(
        _deletes(state, windows[left], outcome.before.start[changed[left]], outcome.before.end[changed[left]]),
        _puts(state, windows[status != REMOVED], _now(state, windows[status != REMOVED])),
        _elements(state, elements, state.elements.status[elements] == REMOVED, rules),
    )


def snapshot(state: State, windows: Array, elements: Array, rules: Rules) -> pa.Table:
    """Return a `put` of each of those windows, then of each of those elements."""
    return _together(
        _puts(state, windows, _now(state, windows)),
        _elements(state, elements, np.zeros(len(elements), np.bool_), rules),
    )


def undo(state: State, outcome: Outcome, changed: Array, elements: Array, rules: Rules) -> pa.Table:
    """Return the changelog that leads back to the state before the batch.

    It has a `delete` of what was not there before the batch, and a `put` of what was (windows as they were then).
    `changed`: positions in the touched list. Elements never change, and stay intact until the batch is settled. A
    window's value stays until the new values are kept.
    """
    windows = outcome.touched[changed].astype(np.int64)
    opened = state.windows.status[windows] == OPENED
    left = windows[opened | _moved(state, outcome.before, changed, windows)]
    before = Before(*(column[changed[~opened]] for column in outcome.before))
    # A window may have been opened with the bounds of one that the batch removed, so deletes come first.
    return _together(
        _deletes(state, left, state.start[left], state.end[left]),
        _puts(state, windows[~opened], before),
        _elements(state, elements, state.elements.status[elements] == OPENED, rules),
    )


def _together(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables([table for table in tables if table.num_rows] or [_NO_CHANGES])


def _moved(state: State, before: Before, changed: Array, windows: Array) -> Array:
    """Return True for each of the changed windows that was there before the batch, and is there with other bounds."""
    same = (before.start[changed] == state.start[windows]) & (before.end[changed] == state.end[windows])
    return np.asarray((state.windows.status[windows] == CHANGED) & ~same)


def _now(state: State, windows: Array) -> Before:
    """Return what those windows are now."""
    stored, order = state.windows.versions.payloads, state.windows.order
    columns = (state.start, state.end, order.arrival, state.content.since, state.windows.phase)
    return Before(*(column[windows] for column in (*columns, stored.timestamp, stored.offset)))


def _deletes(state: State, windows: Array, start: Array, end: Array) -> pa.Table:
    """Return a `delete` for each of the windows, under those bounds."""
    gone = np.ones(len(windows), np.bool_)
    nothing = pa.nulls(len(windows), pa.int64())
    return pa.table(
        {"op": ops(gone)}
        | record_columns(state.windows.versions.payloads, _NO_BATCH, ~windows, only_key=gone)
        | {"window_start": start, "window_end": end, "arrival": np.full(len(windows), WINDOW)}
        | {"opened": nothing, "since": nothing, "phase": pa.nulls(len(windows), pa.int8())},
        CHANGES,
    )


def _puts(state: State, windows: Array, columns: Before) -> pa.Table:
    """Return a `put` for each of the windows, with its value and those columns."""
    return pa.table(
        {"op": ops(np.zeros(len(windows), np.bool_))}
        | record_columns(state.windows.versions.payloads, _NO_BATCH, ~windows)
        | {"timestamp": columns.timestamp, "offset": columns.offset}
        | {"window_start": columns.start, "window_end": columns.end, "arrival": np.full(len(windows), WINDOW)}
        | {"opened": columns.opened, "since": columns.since, "phase": columns.phase.astype(np.int8)},
        CHANGES,
    )


def _elements(state: State, elements: Array, gone: Array, rules: Rules) -> pa.Table:
    """Return a `delete` for each of the elements that is gone, and a `put` for each other."""
    slots = elements.astype(np.int64)
    windows = state.elements.window[slots].astype(np.int64)
    at = state.elements.payloads.timestamp[slots]
    start, end = (at, at) if rules.kind == SESSION else (state.start[windows], state.end[windows])
    nothing = pa.nulls(len(slots), pa.int64())
    return pa.table(
        {"op": ops(gone)}
        | record_columns(state.elements.payloads, _NO_BATCH, ~slots, only_key=gone)
        | {"key": keys(state, windows)}
        | {"window_start": start, "window_end": end, "arrival": state.elements.payloads.offset[slots]}
        | {"opened": nothing, "since": nothing, "phase": pa.nulls(len(slots), pa.int8())},
        CHANGES,
    )
