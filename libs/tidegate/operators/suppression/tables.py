"""Builds the Arrow tables of what a batch emitted and changed in the buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.operators.result_tables import EMISSIONS, NO_EMISSIONS, changes_schema, dictionary_column, ops
from tidegate.operators.suppression import step

PLACE_COLUMNS = (pa.field("place", pa.int64()), pa.field("arrival", pa.int64()))

CHANGES = changes_schema(PLACE_COLUMNS)
_NO_CHANGES = CHANGES.empty_table()
_CAUSES = pa.array(step.CAUSES)


def emissions(state: step.State, batch: FlatRecords, outcome: step.Outcome) -> pa.Table:
    """Return the emissions in order, with their causes."""
    count = outcome.tally[step.EMITTED]
    if count == 0:
        return NO_EMISSIONS
    rows = record_columns(state.payloads, batch, outcome.emitted[:count])
    return pa.table(rows | {"cause": dictionary_column(outcome.cause[:count], _CAUSES)}, EMISSIONS)


def changes(state: step.State, batch: FlatRecords, slots: Array) -> pa.Table:
    """Return the changelog of the slots: `put` with all columns for held ones, `delete` with the key for the others."""
    if len(slots) == 0:
        return _NO_CHANGES
    position = state.time.position[slots]
    gone = position == NOT_HELD
    rows = state.row[slots].astype(np.int64)
    sources = np.where(gone | (rows <= 0), ~slots.astype(np.int64), rows - 1)
    return pa.table(
        {"op": ops(gone)}
        | record_columns(state.payloads, batch, sources, only_key=gone)
        | {"place": pa.array(state.time.place[position], mask=gone)}
        | {"arrival": pa.array(state.time.arrival[slots], mask=gone)},
        CHANGES,
    )


def undo(
    state: step.State, batch: FlatRecords, outcome: step.Outcome, changed: Array, keys: pa.ChunkedArray
) -> pa.Table:
    """Return the changelog that restores the state before the batch.

    It has a `put` for slots that were stored before the batch, whose old records stay intact until the batch is
    settled, and a `delete` for the others. `changed`: indexes into the touched slots. `keys`: the keys of these slots.
    """
    if len(changed) == 0:
        return _NO_CHANGES
    slots = outcome.touched[changed].astype(np.int64)
    opened = state.payloads.block[slots] == 0
    sources = np.where(opened, state.row[slots] - 1, ~slots)
    return pa.table(
        {"op": ops(opened)}
        | record_columns(state.payloads, batch, sources, only_key=opened, keys=keys)
        | {"place": pa.array(outcome.place_before[changed], mask=opened)}
        | {"arrival": pa.array(outcome.arrival_before[changed], mask=opened)},
        CHANGES,
    )
