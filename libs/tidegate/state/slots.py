"""Reduce state rows to the last row of each changelog slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Slot


def columns_of(slot: Slot) -> tuple[str, ...]:
    """Return the columns that identify the slots of any step."""
    if not isinstance(slot, Mapping):
        return slot
    return ("step", *dict.fromkeys(name for names in slot.values() for name in names))


def live_rows(rows: pa.Table, slot: Slot) -> pa.Table:
    """Return the last row of each slot, in the order of the rows; leave out slots whose last row is a `delete`."""
    return rows.filter(pc.and_(_is_last(rows, slot), pc.equal(rows.column("op"), "put")))


def last_rows(rows: pa.Table, slot: Slot) -> pa.Table:
    """Return the last row of each slot, in the order of the rows; `slot` names the columns that identify a slot."""
    return rows.filter(_is_last(rows, slot))


def _is_last(rows: pa.Table, slot: Slot) -> pa.Array:
    numbered = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    last = np.zeros(rows.num_rows, np.bool_)
    for of_step, names in _by_step(numbered, slot):
        last[_last(of_step, names)] = True
    return pa.array(last)


def _by_step(rows: pa.Table, slot: Slot) -> Iterator[tuple[pa.Table, Sequence[str]]]:
    """Yield the rows of each step, with the columns that identify its slots."""
    if not isinstance(slot, Mapping):
        yield rows, slot
        return
    for step, names in slot.items():
        yield rows.filter(pc.is_null(rows["step"]) if step is None else pc.equal(rows["step"], step)), names


def _last(rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the numbers (`row`) of the last row of each slot."""
    newest = rows.select([*names, "row"]).group_by(list(names)).aggregate([("row", "max")])
    found: npt.NDArray[np.int64] = newest.column("row_max").to_numpy()
    return found
