"""What an operator is to everyone else.

An operator is a configuration and a state over flat arrays. It does no I/O and reads no clock: time comes in as
arguments, arrays come from a Storage, results go out as Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.records import Records
from tidegate.contracts.schema import Counts

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ArraySpec:
    """One flat array of a state: `factor * capacity[dimension]` items of `dtype`."""

    name: str
    dtype: str
    dimension: str
    factor: int = 1


SEED = ArraySpec("seed", "int64", "fixed", 2)
"""The secret that seeds the hash of keys: the one array of a new storage that is not zero, where the layout has it."""


@dataclass(frozen=True)
class Layout:
    """The arrays of a state and the capacities that they start with; `kind` and `version` guard against mix-ups."""

    kind: str
    version: int
    arrays: tuple[ArraySpec, ...]
    capacity: Mapping[str, int]


class Storage(Protocol):
    """Where a state's arrays live: process memory or memory-mapped files."""

    def arrays(self) -> Mapping[str, Array]:
        """The current arrays. A new storage's are zero, SEED aside. Growth makes earlier arrays stale: fetch again."""
        ...

    def capacity(self) -> Mapping[str, int]:
        """The current capacity of each dimension."""
        ...

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Every dimension named has at least that capacity; contents stay at the front, the rest is zero."""
        ...


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a batch did to one partition. Tables are in emission (offset) order and lack `batch`, `seq`, `topic`.

    `emissions` has key, value, headers, timestamp, offset, cause (dictionary<int8, string>), window columns where the
    operator has them. `late` and `rejected` have key, value, headers, timestamp, offset, cause, lateness, bound.
    `changes` is the net changelog: op, key, value, headers, timestamp, offset and the operator's own columns; one `put`
    per slot held and changed, one `delete` per slot that was held before and is gone. `undo` leads back: restored onto
    the state after the batch, with the T of before, it gives the state of before; it may have columns of its own.
    `stopped_at` is the offset before which a `shut_down` bound stopped the batch. `floor`: of a history, the
    first time whose versions are all kept. `needs`: of what reads a table, the earliest time that it may still look up.
    """

    emissions: pa.Table
    late: pa.Table
    rejected: pa.Table
    changes: pa.Table
    undo: pa.Table
    counts: Counts
    stream_time: int
    stopped_at: int | None = None
    stop_reason: str = ""
    measures: dict[str, int] = field(default_factory=dict)
    floor: int | None = None
    needs: int | None = None


class OperatorState(Protocol):
    """One partition's state."""

    @property
    def stream_time(self) -> int:
        """T of the partition; NO_STREAM_TIME before the first accepted record."""
        ...

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Every record is counted once; the state equals what the changelog describes.

        `clock_ms` is the batch's clock.
        """
        ...

    def advance(self, stream_time: int) -> StepResult:
        """T is at least `stream_time`; what became due is emitted with cause `idle`."""
        ...

    def flush(self) -> StepResult:
        """Nothing is held; everything that was is emitted with cause `flush`."""
        ...

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """The rows are applied: `put` replaces a slot, `delete` removes it; the latest row of a slot comes last.

        Serves the rebuild from a snapshot and its tail, and the catching up of an older state. T becomes `stream_time`.
        """
        ...

    def snapshot(self) -> pa.Table:
        """The rows (all `put`) from which `restore` makes an equal state, in emission order."""
        ...


class TableReader(OperatorState, Protocol):
    """One partition's state of an operator that reads a table."""

    def read_table(self, table: Any, open_until: int = ALWAYS) -> None:
        """What follows looks up in that state of the table's partition; to be called before the first step.

        What is held for a grace leaves up to the event time `open_until`: for later times the table is not complete.
        """
        ...


class ReadTable(OperatorState, Protocol):
    """One partition's state of an operator whose versions others read."""

    def hold(self, floor: int, needs: int) -> None:
        """Keep what a reader may look up as of `needs` or later; versions before `floor` have gone already."""
        ...


class Operator(Protocol):
    """A kind of operator with its configuration."""

    kind: str
    layout: Layout
    columns: tuple[pa.Field, ...]  # what it adds to the log's schema
    slot: tuple[str, ...]  # the columns that identify a changelog slot

    def damage(self, storage: Storage) -> str | None:
        """What is wrong with a storage that a batch was complete in; None: nothing. Trusts nothing that is in it.

        What it lets pass behaves as the undamaged state would.
        """
        ...

    def open(self, storage: Storage) -> OperatorState:
        """The state that lives in the storage (empty when the storage is new)."""
        ...
