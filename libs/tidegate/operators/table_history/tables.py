"""Builds the Arrow tables of what a batch changed in a table's versions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.columns import located_columns, record_columns
from tidegate.kernels.payloads import FlatRecords, Located, flat_records, locate
from tidegate.kernels.touched import OPENED, REMOVED
from tidegate.operators.result_tables import changes_schema, ops
from tidegate.operators.table_history import step

CHANGES = changes_schema()
_NO_CHANGES = CHANGES.empty_table()
NO_BATCH = flat_records(Records.from_rows([]))


def changes(state: step.State, batch: FlatRecords, versions: Array) -> pa.Table:
    """Return the changelog of the versions: full `put` rows; for those gone, `delete` rows with key and timestamp."""
    if len(versions) == 0:
        return _NO_CHANGES
    stored = state.versions.payloads
    gone = state.status[versions] == REMOVED
    columns = record_columns(stored, batch, ~versions.astype(np.int64), only_key=gone)
    return pa.table({"op": ops(gone)} | columns | {"timestamp": pa.array(stored.timestamp[versions])}, CHANGES)


def undo(state: step.State, outcome: step.Outcome, changed: Array, keys: pa.ChunkedArray) -> pa.Table:
    """Return the changelog that restores the versions before the batch.

    It has a `put` for each version stored before the batch, and a `delete` for each that the batch opened. A replaced
    record is in `outcome.replaced`; an expired one stays intact until the batch is settled. `changed`: indexes into the
    touched versions. `keys`: the keys of these versions.
    """
    if len(changed) == 0:
        return _NO_CHANGES
    stored, old, versions = state.versions.payloads, outcome.replaced, outcome.touched[changed].astype(np.int64)
    located = Located(*(np.empty(len(changed), np.int64) for _ in Located._fields))
    locate(stored, NO_BATCH, ~versions, located)
    replaced = np.flatnonzero(changed < len(old.start))
    replaced = replaced[old.start[changed[replaced]] != step.NOT_REPLACED]
    at = changed[replaced]
    located.key_start[replaced] = old.start[at]
    located.value_start[replaced] = old.start[at] + old.key_length[at]
    located.headers_start[replaced] = located.value_start[replaced] + np.maximum(old.value_length[at], 0)
    for name in ("key_length", "value_length", "headers_length", "timestamp", "offset"):
        getattr(located, name)[replaced] = getattr(old, name)[at]
    opened = state.status[versions] == OPENED
    columns = located_columns((old.data, stored.arena.data), located, opened, keys)
    return pa.table({"op": ops(opened)} | columns | {"timestamp": pa.array(located.timestamp)}, CHANGES)
