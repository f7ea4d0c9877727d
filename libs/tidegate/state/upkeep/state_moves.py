"""Move held state between partitions, in memory, and check that nothing was lost or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.errors import StateError
from tidegate.contracts.event_time import NEVER, NO_STREAM_TIME
from tidegate.contracts.operator import Operator, OperatorState
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.row_checksums import sum_of_checksums
from tidegate.state.slots import columns_of
from tidegate.state.upkeep.rescaling import numbered_together, offsets_in, renumbered, rows_for

_CONTENTS = ("key", "value", "headers", "timestamp")
"""The columns of each state row that depend neither on its partition nor on offsets, beside the operator's own."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """State rows of one partition, all `put`, and its stream time; `emissions`: what it has just released."""

    rows: pa.Table
    stream_time: int
    emissions: pa.Table | None = None

    @property
    def emitted(self) -> int:
        """Return how many records were released."""
        return 0 if self.emissions is None else self.emissions.num_rows


def aligned(operator: Operator, held: Held, stream_time: int) -> Held:
    """Return the partition's state once its stream time has advanced to `stream_time`, and what that releases."""
    if held.stream_time >= stream_time or held.rows.num_rows == 0:
        return Held(rows=held.rows, stream_time=max(held.stream_time, stream_time))
    state = _restored(operator, held)
    # rule: rescale-due-released
    released = state.advance(stream_time).emissions
    return Held(rows=state.snapshot(), stream_time=stream_time, emissions=released)


def moved(operator: Operator, sources: Sequence[Held], partition: int, partitions: int) -> Held:
    """Return what a partition, of so many, takes over from its sources, which all have the same stream time."""
    columns = operator.offset_columns
    rows = [rows_for(each.rows, partition, partitions) for each in sources]
    emissions = [
        None if each.emissions is None else rows_for(each.emissions, partition, partitions) for each in sources
    ]
    state = [offsets_in(each, columns) for each in rows]
    new = numbered_together(state)
    whole = [renumbered(each, columns, *numbers) for each, *numbers in zip(rows, state, new, strict=True)]
    released = [each for each in emissions if each is not None]
    return Held(
        rows=pa.concat_tables(whole, promote_options="default"),
        stream_time=max((each.stream_time for each in sources), default=NO_STREAM_TIME),
        emissions=pa.concat_tables(released) if released else None,
    )


def counted(operator: Operator, held: Held) -> Counts:
    """Return what is held by a state that is made of these rows.

    Raise StateError if the operator cannot continue with them: its state would be damaged, would not hold these rows,
    or would release some of them at once.
    """
    storage = MemoryStorage(operator.layout)
    state = operator.open(storage)
    state.restore(held.rows, held.stream_time)
    if (damage := operator.damage(storage)) is not None:
        raise _defect(damage)
    if checksum(operator, state.snapshot()) != checksum(operator, held.rows):
        raise _defect("the state made of the rows does not have the same contents")
    result = _at_rest(state).advance(held.stream_time)
    if result.emissions.num_rows or result.changes.num_rows:
        raise _defect(f"{result.emissions.num_rows} rows would be emitted, {result.changes.num_rows} changed")
    return result.counts


def checksum(operator: Operator, rows: pa.Table) -> int:
    """Return the sum of the rows' checksums, over all that depends neither on the partition nor on offsets."""
    columns = operator.offset_columns
    own = {*columns_of(operator.slot), *(column.name for column in operator.columns)}
    names = sorted(own.union(_CONTENTS).difference(("offset", *columns.plain, *columns.complemented)))
    return sum_of_checksums(pa.table({name: _column(rows, name) for name in names}))


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the column; one of nulls if the rows lack it."""
    return rows.column(name) if name in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])


def _restored(operator: Operator, held: Held) -> OperatorState:
    state = operator.open(MemoryStorage(operator.layout))
    state.restore(held.rows, held.stream_time)
    return state


def _at_rest(state: Any) -> OperatorState:
    """Return the state after it was kept from releasing records that wait for a table, or from dropping versions."""
    if hasattr(state, "read_table"):
        state.read_table(None, NO_STREAM_TIME)
    if hasattr(state, "hold"):
        state.hold(NEVER, NEVER)
    found: OperatorState = state
    return found


def _defect(what: str) -> StateError:
    return StateError(
        "the state cannot be moved",
        value=what,
        remedy="this is a defect of Tidegate: report it with the value; nothing was committed",
    )
