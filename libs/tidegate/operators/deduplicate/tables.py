"""Builds the Arrow tables of what a batch emitted, remembered and forgot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import NOT_HELD
from tidegate.operators.deduplicate import step
from tidegate.operators.result_tables import EMISSIONS, changes_schema, dictionary_column, ops

CHANGES = changes_schema()
_CAUSES = pa.array(["first"])


def emissions(state: step.State, batch: FlatRecords, rows: Array) -> pa.Table:
    """Return the records of these rows, in order."""
    causes = dictionary_column(np.zeros(len(rows), np.int8), _CAUSES)
    return pa.table(record_columns(state.payloads, batch, rows) | {"cause": causes}, EMISSIONS)


def changes(state: step.State, batch: FlatRecords, slots: Array, gone: Array) -> pa.Table:
    """Return a changelog of the slots: `delete` where `gone` is true, else `put`.

    A row has the key and the timestamp, which are the slot, and of a `put` the offset of the first record.
    """
    columns = record_columns(state.payloads, batch, ~slots.astype(np.int64))
    columns["offset"] = pa.chunked_array([pa.array(state.payloads.offset[slots], mask=gone)])
    return pa.table({"op": ops(gone)} | columns, CHANGES)


def net_changes(state: step.State, outcome: step.Outcome, first_offset: int) -> tuple[Array, Array]:
    """Return the slots that a batch changed, and for each whether it has expired.

    A slot that was opened and expired in the batch is not among them. `first_offset`: the smallest of the batch.
    """
    opened = outcome.opened[: outcome.tally[step.EMITTED]]
    expired = outcome.expired[: outcome.tally[step.EXPIRED]]
    opened = opened[state.time.position[opened] != NOT_HELD]
    expired = expired[state.payloads.offset[expired] < first_offset]
    slots = np.concatenate([opened, expired])
    return slots, np.arange(len(slots)) >= len(opened)
