"""Reduce state rows to the last row of each changelog slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def live_rows(rows: pa.Table, slot: Sequence[str]) -> pa.Table:
    """Return the last row of each slot, in the order of the rows; leave out slots whose last row is a `delete`."""
    return rows.filter(pc.and_(_is_last(rows, slot), pc.equal(rows.column("op"), "put")))


def last_rows(rows: pa.Table, slot: Sequence[str]) -> pa.Table:
    """Return the last row of each slot, in the order of the rows; `slot` names the columns that identify a slot."""
    return rows.filter(_is_last(rows, slot))


def _is_last(rows: pa.Table, slot: Sequence[str]) -> pa.Array:
    numbered = rows.select(list(slot)).append_column("row", pa.array(np.arange(rows.num_rows)))
    newest = numbered.group_by(list(slot)).aggregate([("row", "max")]).column("row_max")
    last = np.zeros(rows.num_rows, np.bool_)
    last[newest.to_numpy()] = True
    return pa.array(last)
