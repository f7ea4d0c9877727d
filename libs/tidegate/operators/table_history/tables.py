"""What a batch did to the versions, in Arrow tables. May import: numpy, pyarrow, contracts, kernels, operators."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.kernels.columns import record_columns
from tidegate.kernels.payloads import Batch
from tidegate.operators.result_tables import changes_schema, ops
from tidegate.operators.table_history import step

CHANGES = changes_schema()


def changes(state: step.State, batch: Batch, versions: Array) -> pa.Table:
    """The changelog of the versions: `put` with everything, `delete` with key and timestamp for those that are gone."""
    if len(versions) == 0:
        return CHANGES.empty_table()
    stored = state.versions.payloads
    gone = state.standing[versions] == step.GONE
    columns = record_columns(stored, batch, ~versions.astype(np.int64), only_key=gone)
    return pa.table({"op": ops(gone)} | columns | {"timestamp": pa.array(stored.timestamp[versions])}, CHANGES)
