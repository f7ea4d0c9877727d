"""Builds the Arrow tables of what a batch joined, and of what it changed in the buffer."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.columns import binary_column, record_columns
from tidegate.kernels.payloads import Batch, Located, locate
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.kernels.version_chains import Trail, Versions
from tidegate.operators import result_tables
from tidegate.operators.keys import Keys
from tidegate.operators.result_tables import changes_schema, ops, words
from tidegate.operators.stream_table_join import step
from tidegate.operators.stream_table_join.joiner import Joiner
from tidegate.operators.stream_table_join.pairs import Strings, paired

ARRIVED, VALID_FROM = pa.field("arrived", pa.int64()), pa.field("valid_from", pa.int64())
SLOT = pa.field("slot", pa.int64())
"""In rows that undo a batch: the slot of the record, so that no index of all held slots is needed to find it."""

EMISSIONS = result_tables.EMISSIONS.append(VALID_FROM)
CHANGES = changes_schema([ARRIVED])
UNDO = CHANGES.append(SLOT)

Columns = TypeVar("Columns", Located, step.Met, Trail)

MATCHED, UNMATCHED, LATE, EXPIRED = range(4)
CAUSES = pa.array(["matched", "unmatched", "late", "expired"])


def emissions(
    state: step.State,
    batch: Batch,
    outcome: step.Outcome,
    versions: Versions,
    keys: Keys,
    inner: bool,
    joiner: Joiner | None,
) -> pa.Table:
    """Return the joined records in order; one without a version has a null table value, or is dropped if `inner`."""
    count = outcome.tally[step.EMITTED]
    buffers = batch.data, state.payloads.arena.data
    records, met, trail = _empty(Located, count), _empty(step.Met, count), _empty(Trail, count)
    locate(state.payloads, batch, outcome.emitted[:count], records)
    outcome.tally[step.EXPIRED] = step.meet(versions, *buffers, records, trail, met)
    late, found = outcome.late[:count], met.length != NULL_LENGTH
    if inner and not found.all():
        records, met = _chosen(records, found), _chosen(met, found)
        late, found = late[found], found[found]
    values = Strings(*buffers, records.value_start, records.value_length)
    table = Strings(versions.payloads.arena.data, versions.payloads.arena.data, met.start, met.length)
    answered = np.where(late, LATE, np.where(found, MATCHED, UNMATCHED))
    causes = np.where(met.version == step.EXPIRED_VERSION, EXPIRED, answered)
    columns = {
        "key": binary_column(*buffers, records.key_start, records.key_length),
        "headers": binary_column(*buffers, records.headers_start, _null_if_none(records.headers_length)),
        "timestamp": pa.array(records.timestamp),
        "valid_from": pa.array(met.valid_from, mask=~found),
        "offset": pa.array(records.offset),
        "cause": words(causes, CAUSES),
    }
    rows = keys.shown(pa.table(columns))
    value = paired(values, table, met.version) if joiner is None else _joined(joiner, rows, values, table)
    schema = pa.schema([*EMISSIONS, *keys.columns])
    return rows.append_column("value", value).select(schema.names).cast(schema)


def _joined(joiner: Joiner, columns: pa.Table, values: Strings, table: Strings) -> pa.ChunkedArray:
    """Return the joiner's values for the records and their table values."""
    of_stream = {"key": columns["key"], "value": binary_column(*values)}
    of_stream |= {name: columns[name] for name in ("headers", "timestamp")}
    return joiner.joined(of_stream, {"value": binary_column(*table), "valid_from": columns["valid_from"]})


def _empty(kind: type[Columns], count: int) -> Columns:
    return kind(*(np.empty(count, np.int64) for _ in kind._fields))


def _chosen(columns: Columns, chosen: Array) -> Columns:
    return type(columns)(*(column[chosen] for column in columns))


def _null_if_none(lengths: Array) -> Array:
    return np.where(lengths > 0, lengths, NULL_LENGTH)


def changes(state: step.State, batch: Batch, slots: Array) -> pa.Table:
    """Return the changelog of the slots: full `put` rows for held ones, otherwise `delete` rows with their identity."""
    if len(slots) == 0:
        return CHANGES.empty_table()
    gone = state.time.position[slots] == NOT_HELD
    rows = state.row[slots].astype(np.int64)
    sources = np.where(gone | (rows <= 0), ~slots.astype(np.int64), rows - 1)
    return pa.table(
        {"op": ops(gone)}
        | record_columns(state.payloads, batch, sources, only_key=gone)
        | {"timestamp": pa.array(state.payloads.timestamp[slots]), "offset": pa.array(state.payloads.offset[slots])}
        | {"arrived": pa.array(state.arrived[slots], mask=gone)},
        CHANGES,
    )


def undo(state: step.State, batch: Batch, slots: Array, keys: pa.ChunkedArray) -> pa.Table:
    """Return the changelog that restores the buffer before the batch.

    It has a `put` for slots that were stored before the batch, and a `delete` for the others. A stored record never
    changes, it only leaves, and it stays intact until the batch is settled. `keys`: the keys of the slots.
    """
    if len(slots) == 0:
        return UNDO.empty_table()
    slots = slots.astype(np.int64)
    opened = state.payloads.block[slots] == 0
    return pa.table(
        {"op": ops(opened)}
        | record_columns(state.payloads, batch, np.where(opened, state.row[slots] - 1, ~slots), opened, keys)
        | {"timestamp": state.payloads.timestamp[slots], "offset": state.payloads.offset[slots]}
        | {"arrived": pa.array(state.arrived[slots], mask=opened), "slot": slots},
        UNDO,
    )
