"""State rows by changelog slot. May import: numpy, pyarrow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def live_rows(rows: pa.Table, slot: Sequence[str]) -> pa.Table:
    """The last row of each slot, in the rows' order, without the slots whose last row is a `delete`."""
    last = last_rows(rows, slot)
    return last.filter(pc.equal(last.column("op"), "put"))


def last_rows(rows: pa.Table, slot: Sequence[str]) -> pa.Table:
    """The last row of each slot, in the rows' order; `slot` names the columns that identify one."""
    numbered = rows.select(list(slot)).append_column("row", pa.array(np.arange(rows.num_rows)))
    newest = numbered.group_by(list(slot)).aggregate([("row", "max")]).column("row_max")
    if len(newest) == rows.num_rows:
        return rows
    return rows.take(np.sort(newest.to_numpy()))
