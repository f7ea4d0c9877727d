"""Builds the Arrow tables of what a batch joined, refused, and changed in the buffer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.columns import binary_column, record_columns
from tidegate.kernels.payloads import FlatRecords, Located, locate
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.operators import late_and_rejected, result_tables
from tidegate.operators.json_values.pairs import Strings, names_of, paired
from tidegate.operators.late_and_rejected import LATE, Unaccepted
from tidegate.operators.result_tables import changes_schema, dictionary_column, ops
from tidegate.operators.stream_stream_join import step
from tidegate.operators.stream_stream_join.config import SIDES

SIDE, WAITS = pa.field("side", pa.string()), pa.field("waits", pa.bool_())
CHANGES = changes_schema([SIDE, WAITS])
CAUSES = pa.array(["matched", "unmatched"])

_NAMES = names_of(*SIDES)
_SIDES = pa.array(SIDES)


class Found(NamedTuple):
    """The records of results on one side, and where there is none. `at` has the partner's place there."""

    at: Located
    missing: Array


def emissions(state: step.State, batch: FlatRecords, outcome: step.Outcome) -> pa.Table:
    """Return the results in order. Key, headers and offset are those of the left record, if there is one.

    The timestamp is the later one of both.
    """
    count = outcome.tally[step.RESULTS]
    left, right = (outcome.left[:count], outcome.right[:count])
    lefts, rights = _found(state, batch, left, right), _found(state, batch, right, left)
    buffers = batch.data, state.payloads.arena.data
    shared = np.where(rights.missing, -1, np.arange(count))
    at = lefts.at
    columns = {
        "key": binary_column(*buffers, at.key_start, at.key_length),
        "value": paired(_values(buffers, lefts), _values(buffers, rights), shared, _NAMES),
        "headers": binary_column(
            *buffers, at.headers_start, np.where(at.headers_length > 0, at.headers_length, NULL_LENGTH)
        ),
        "timestamp": np.maximum(at.timestamp, rights.at.timestamp),
        "offset": at.offset,
        "cause": dictionary_column(lefts.missing | rights.missing, CAUSES),
    }
    return pa.table(columns, result_tables.EMISSIONS)


def _found(state: step.State, batch: FlatRecords, sources: Array, partners: Array) -> Found:
    missing = sources == step.NO_RECORD
    at = Located(*(np.empty(len(sources), np.int64) for _ in Located._fields))
    locate(state.payloads, batch, np.where(missing, partners, sources), at)
    return Found(at, missing)


def _values(buffers: tuple[Array, Array], found: Found) -> Strings:
    return Strings(*buffers, found.at.value_start, np.where(found.missing, NULL_LENGTH, found.at.value_length))


def late(state: step.State, batch: FlatRecords, unaccepted: Unaccepted, port: Array, rules: step.Rules) -> pa.Table:
    """Return the late records, each with its side, its lateness, and the smallest timestamp of it that was not late."""
    rows = late_and_rejected.late(state.payloads, batch, unaccepted, 0, "its window is closed")
    ports = port[_rows(unaccepted, late=True)]
    bound = rows["bound"].to_numpy() - np.array(rules.open_for)[ports]
    return rows.set_column(rows.column_names.index("bound"), "bound", pa.array(bound)).append_column(SIDE, _side(ports))


def rejected(state: step.State, batch: FlatRecords, unaccepted: Unaccepted, port: Array, newest: int) -> pa.Table:
    """Return the rejected records, each with its side and the reason."""
    rows = late_and_rejected.rejected(state.payloads, batch, unaccepted, newest)
    return rows.append_column(SIDE, _side(port[_rows(unaccepted, late=False)]))


def _rows(unaccepted: Unaccepted, *, late: bool) -> Array:
    count = unaccepted.numbers[late_and_rejected.COUNT]
    return np.asarray(unaccepted.row[:count][(unaccepted.code[:count] == LATE) == late])


def _side(port: Array) -> pa.Array:
    return _SIDES.take(pa.array(port))


def port_of(rows: pa.RecordBatch) -> Array:
    """Return the ports of changelog rows."""
    return np.asarray(rows.column(SIDE.name).to_numpy(zero_copy_only=False) == SIDES[1], np.int8)


def waits_of(rows: pa.RecordBatch) -> Array:
    """Return for each changelog row whether its record waits for a partner; False of a `delete`."""
    return np.asarray(rows.column(WAITS.name).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def changes(state: step.State, batch: FlatRecords, slots: Array) -> pa.Table:
    """Return the changelog of the slots: full `put` rows for held ones, otherwise `delete` rows with their identity."""
    gone = state.time.position[slots] == NOT_HELD
    return _changelog(state, batch, slots, gone, state.waits[slots] != 0)


def undo(state: step.State, batch: FlatRecords, slots: Array) -> pa.Table:
    """Return the changelog that restores the buffer before the batch.

    It has a `put` for slots that were stored before the batch, and a `delete` for the others. Of a stored record the
    batch changes only whether it waits, and it stays intact until the batch is settled.
    """
    opened = state.payloads.block[slots] == 0
    return _changelog(state, batch, slots, opened, (state.waits[slots] != 0) | (state.row[slots] == step.CHANGED))


def _changelog(state: step.State, batch: FlatRecords, slots: Array, gone: Array, waits: Array) -> pa.Table:
    """Return a row of each slot: `delete` where `gone` is true, else `put`. Times and offsets are part of the slot."""
    stored = state.payloads.block[slots] != 0
    arrival = state.time.arrival[slots]
    sources = np.where(stored, ~slots.astype(np.int64), state.row[slots].astype(np.int64) - 1)
    own = {
        "timestamp": state.payloads.timestamp[slots],
        "offset": arrival & ((1 << step.SIDE_BIT) - 1),
        SIDE.name: _side(arrival >> step.SIDE_BIT),
        WAITS.name: pa.array(waits, mask=gone),
    }
    return pa.table({"op": ops(gone)} | record_columns(state.payloads, batch, sources, only_key=gone) | own, CHANGES)
