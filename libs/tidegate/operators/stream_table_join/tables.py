"""Builds the Arrow tables of what a batch joined, and of what it changed in the buffer."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.columns import binary_column, record_columns
from tidegate.kernels.payloads import FlatRecords, Located, locate
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.kernels.version_chains import LookupScratch, Versions
from tidegate.kernels.window_keys import BOUNDS_BYTES
from tidegate.operators import result_tables
from tidegate.operators.json_values.pairs import Strings, names_of, paired
from tidegate.operators.keys import Keys
from tidegate.operators.result_tables import changes_schema, dictionary_column, ops
from tidegate.operators.stream_table_join import step
from tidegate.operators.stream_table_join.joiner import Joiner

ARRIVED, VALID_FROM = pa.field("arrived", pa.int64()), pa.field("valid_from", pa.int64())
SLOT = pa.field("slot", pa.int64())
"""In rows that undo a batch: the slot of the record, so that no index of all held slots is needed to find it."""

EMISSIONS = result_tables.EMISSIONS.append(VALID_FROM)
NO_EMISSIONS = EMISSIONS.empty_table()
CHANGES = changes_schema([ARRIVED])
UNDO = CHANGES.append(SLOT)
_NO_CHANGES, _NO_UNDO = CHANGES.empty_table(), UNDO.empty_table()

Columns = TypeVar("Columns", Located, step.Found, LookupScratch)


class Table(NamedTuple):
    """The table that records are joined with. `in_window`: their keys have windows and those of the table have none."""

    versions: Versions
    in_window: bool

    def keys_of(self, records: Located) -> Located:
        """Return the records under the keys by which the table knows them: without the windows before these."""
        if not self.in_window:
            return records
        start, length = records.key_start, records.key_length
        has_key = length >= 0  # a start in the arena is a complement
        return records._replace(
            key_start=np.where(start >= 0, start + BOUNDS_BYTES, start - BOUNDS_BYTES),
            key_length=np.where(has_key, length - BOUNDS_BYTES, length),
        )


MATCHED, UNMATCHED, LATE, EXPIRED = range(4)
CAUSES = pa.array(["matched", "unmatched", "late", "expired"])

_NAMES = names_of("stream", "table")


def emissions(
    state: step.State,
    batch: FlatRecords,
    outcome: step.Outcome,
    table_read: Table,
    keys: Keys,
    inner: bool,
    joiner: Joiner | None,
) -> pa.Table:
    """Return the joined records in order; one without a version has a null table value, or is dropped if `inner`."""
    count = outcome.tally[step.EMITTED]
    buffers = batch.data, state.payloads.arena.data
    records, found, scratch = _empty(Located, count), _empty(step.Found, count), _empty(LookupScratch, count)
    locate(state.payloads, batch, outcome.emitted[:count], records)
    versions = table_read.versions
    outcome.tally[step.EXPIRED] = step.look_up(versions, *buffers, table_read.keys_of(records), scratch, found)
    late, matched = outcome.late[:count], found.length != NULL_LENGTH
    if inner and not matched.all():
        outcome.emitted_after[: matched.sum()] = outcome.emitted_after[:count][matched]
        records, found = _chosen(records, matched), _chosen(found, matched)
        late, matched = late[matched], matched[matched]
    values = Strings(*buffers, records.value_start, records.value_length)
    table = Strings(versions.payloads.arena.data, versions.payloads.arena.data, found.start, found.length)
    answered = np.where(late, LATE, np.where(matched, MATCHED, UNMATCHED))
    causes = np.where(found.version == step.EXPIRED_VERSION, EXPIRED, answered)
    columns = {
        "key": binary_column(*buffers, records.key_start, records.key_length),
        "headers": binary_column(*buffers, records.headers_start, _null_if_none(records.headers_length)),
        "timestamp": pa.array(records.timestamp),
        "valid_from": pa.array(found.valid_from, mask=~matched),
        "offset": pa.array(records.offset),
        "cause": dictionary_column(causes, CAUSES),
    }
    rows = keys.with_record_keys(pa.table(columns))
    value = paired(values, table, found.version, _NAMES) if joiner is None else _joined(joiner, rows, values, table)
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


def changes(state: step.State, batch: FlatRecords, slots: Array) -> pa.Table:
    """Return the changelog of the slots: full `put` rows for held ones, otherwise `delete` rows with their identity."""
    if len(slots) == 0:
        return _NO_CHANGES
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


def undo(state: step.State, batch: FlatRecords, slots: Array, keys: pa.ChunkedArray) -> pa.Table:
    """Return the changelog that restores the buffer before the batch.

    It has a `put` for slots that were stored before the batch, and a `delete` for the others. A stored record never
    changes, it only leaves, and it stays intact until the batch is settled. `keys`: the keys of the slots.
    """
    if len(slots) == 0:
        return _NO_UNDO
    slots = slots.astype(np.int64)
    opened = state.payloads.block[slots] == 0
    return pa.table(
        {"op": ops(opened)}
        | record_columns(state.payloads, batch, np.where(opened, state.row[slots] - 1, ~slots), opened, keys)
        | {"timestamp": state.payloads.timestamp[slots], "offset": state.payloads.offset[slots]}
        | {"arrived": pa.array(state.arrived[slots], mask=opened), "slot": slots},
        UNDO,
    )
