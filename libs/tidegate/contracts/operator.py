"""The interfaces of operators, their state and the storage of that state.

An operator is a configuration and a state over flat arrays. It does no I/O and reads no clock: time is passed in as an
argument, arrays come from a Storage, results are returned as Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.flow import Passage
from tidegate.contracts.records import Records

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ArraySpec:
    """One flat array of a state: `factor * capacity[dimension]` items of `dtype`."""

    name: str
    dtype: str
    dimension: str
    factor: int = 1


SEED = ArraySpec("seed", "int64", "fixed", 2)
"""The secret seed for the hash of keys: if the layout has it, the only array of a new storage that is not zero."""


@dataclass(frozen=True)
class Layout:
    """The arrays of a state and their initial capacities; `kind` and `version` guard against mix-ups."""

    kind: str
    version: int
    arrays: tuple[ArraySpec, ...]
    capacity: Mapping[str, int]


class Storage(Protocol):
    """The place where a state's arrays live: process memory or memory-mapped files."""

    def arrays(self) -> Mapping[str, Array]:
        """Return the current arrays. In a new storage they are zero, except SEED.

        Growth makes arrays that were returned earlier stale: fetch them again.
        """
        ...

    def capacity(self) -> Mapping[str, int]:
        """Return the current capacity of each dimension."""
        ...

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Grow every given dimension to at least that capacity. Contents stay at the front, the rest is zero."""
        ...


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of a micro-batch for one partition.

    Tables are in emission (offset) order and lack `batch`, `seq`, `topic`. `emissions` has key, value, headers,
    timestamp, offset, cause (dictionary<int8, string>), and window columns if the operator has them. `late` and
    `rejected` have key, value, headers, timestamp, offset, cause, lateness, bound.

    `changes` is the net changelog: op, key, value, headers, timestamp, offset and the operator's own columns. It has
    one `put` per slot that is held and was changed, and one `delete` per slot that was held before and no longer is.
    `undo` is the way back: restored onto the state after the batch, with the T from before the batch, it gives the
    state from before the batch; it may have columns of its own.

    `stopped_at` is the offset before which a limit stopped the batch, `stopped_by` the option that sets the limit.
    `floor`, for a history: the first time from which all versions are kept. `needs`, for a reader of tables: by table
    the earliest time that it may still look up. `passage`: how the batch moved stream time; time marks are made of it.

    Of a pipeline, `ledger` has what became of the rows at each step, and `reader_time` by table the stream time of the
    step that reads it. Its tables have a column `step`; its outputs also `source`, and late and rejected rows `topic`,
    where they did not arrive in the input.
    """

    emissions: pa.Table
    late: pa.Table
    rejected: pa.Table
    changes: pa.Table
    undo: pa.Table
    counts: Counts
    stream_time: int
    stopped_at: int | None = None
    stopped_by: str = ""
    measures: dict[str, int] = field(default_factory=dict)
    floor: int | None = None
    needs: Mapping[str, int] = field(default_factory=dict)
    reader_time: Mapping[str, int] = field(default_factory=dict)
    passage: Passage | None = field(default=None, compare=False, repr=False)
    ledger: Mapping[str, Counts] = field(default_factory=dict)


def measured(measures: Mapping[str, int], name: str) -> int:
    """Return a measure of an operator that adds up, over all steps if it is a pipeline; 0 if it has no such measure."""
    return sum(number for of, number in measures.items() if of.rpartition(".")[2] == name)


class OperatorState(Protocol):
    """The state of one partition."""

    @property
    def stream_time(self) -> int:
        """Return stream time T of the partition; NO_STREAM_TIME before the first accepted record."""
        ...

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Process the records of a micro-batch, whose wall clock is `clock_ms`.

        Every record is counted once. Afterwards the state equals what the changelog describes.
        """
        ...

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance T to at least `stream_time`, and emit what became due with cause `idle`.

        `clock_ms`: the wall clock of the batch; only the inner steps of a pipeline read it.
        """
        ...

    def flush(self) -> StepResult:
        """Emit everything that is held with cause `flush`. Nothing is held afterwards."""
        ...

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, then set T to `stream_time`.

        `put` replaces a slot, `delete` removes it; the latest row of a slot comes last. Used to rebuild a state from a
        snapshot and the changelog after it, and to bring an older state up to date.
        """
        ...

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` makes an equal state, in emission order."""
        ...


class TableReader(OperatorState, Protocol):
    """The state of one partition of an operator that reads tables."""

    def read_table(self, table: Any, open_until: int = ALWAYS, name: str | None = None) -> None:
        """Use the given state of the table's partition for all further lookups. Call this before the first step.

        Records held for a grace are released up to the event time `open_until`: the table is not complete for later
        times. `name`: which of the tables it is; None: every table that is read.
        """
        ...

    def needs(self) -> Mapping[str, int]:
        """Return by table the earliest event time for which it may still look up a version."""
        ...


@runtime_checkable
class HoldsAnyAge(OperatorState, Protocol):
    """The state of one partition of an operator that may hold records older than its stream time less its hold."""

    def oldest(self) -> int:
        """Return a time before which nothing that is held has its timestamp; MAX_TIMESTAMP if nothing is held.

        To be called once after a batch. The work does not depend on how much is held: the time may be that of a record
        that has left a while ago.
        """
        ...


class ReadTable(OperatorState, Protocol):
    """The state of one partition of an operator whose versions others read."""

    def hold(self, floor: int, needs: int) -> None:
        """Keep what a reader may look up as of `needs` or later. Versions before `floor` are gone already."""
        ...


Slot = tuple[str, ...] | Mapping[str | None, tuple[str, ...]]
"""The columns that identify a changelog slot; of a pipeline, those of each step's rows, by step.

The rows of step None are the pipeline's own.
"""


@dataclass(frozen=True)
class OffsetColumns:
    """The columns of state rows that hold offsets, beside `offset`.

    `plain`: an offset, or a negative number that is none. `complemented`: an offset, or the complement of one.
    """

    plain: tuple[str, ...] = ()
    complemented: tuple[str, ...] = ()


class Operator(Protocol):
    """A kind of operator with its configuration."""

    kind: str
    layout: Layout
    columns: tuple[pa.Field, ...]  # its own columns in the log's schema
    offset_columns: OffsetColumns  # which columns of its state rows hold offsets

    @property
    def slot(self) -> Slot:
        """Return the columns that identify a changelog slot."""
        ...

    def damage(self, storage: Storage) -> str | None:
        """Check a storage in which a batch was completed; return what is wrong with it, or None.

        The check trusts nothing in the storage. A storage that passes behaves as the undamaged state would.
        """
        ...

    def open(self, storage: Storage) -> OperatorState:
        """Return the state that lives in the storage; it is empty if the storage is new."""
        ...
