"""The protocol of the operator log that property tests need, and an implementation in memory."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from tidegate.contracts.operator import Slot, StepResult


class LogUnderTest(Protocol):
    """A log of one partition. Batches are numbered from 0 in the order of their commits."""

    def commit(self, result: StepResult) -> None:
        """Append the batch to the log."""
        ...

    def compact(self) -> None:
        """Replace all state rows so far by a snapshot."""
        ...

    def rows(self) -> pa.Table:
        """Return the newest snapshot and the changes after it, from which a new state is restored."""
        ...

    def tail(self, batch: int) -> pa.Table | None:
        """Return the changes after that batch, for a state as of it; None if a later compaction has replaced them."""
        ...


class MemoryLog:
    """A LogUnderTest in process memory. `slot`: the columns that identify a changelog slot, or those of each step."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._snapshot: list[pa.Table] = []
        self._changes: list[pa.Table] = []
        self._compacted = -1

    def commit(self, result: StepResult) -> None:
        """Append the batch to the log."""
        self._changes.append(result.changes)

    def compact(self) -> None:
        """Replace all rows so far by the newest `put` of each slot that was not deleted afterwards."""
        if not self._changes:
            return
        rows = self.rows()
        newest = {self._identity(row): at for at, row in enumerate(rows.to_pylist())}
        kept = [at for at in newest.values() if rows["op"][at].as_py() == "put"]
        self._snapshot = [rows.take(pa.array(kept, pa.int64()))]
        self._compacted = len(self._changes) - 1

    def _identity(self, row: dict[str, Any]) -> tuple[Any, ...]:
        if isinstance(self._slot, tuple):
            return tuple(row[column] for column in self._slot)
        return row["step"], *(row[column] for column in self._slot[row["step"]])

    def rows(self) -> pa.Table:
        """Return the newest snapshot and the changes after it."""
        return pa.concat_tables([*self._snapshot, *self._changes[self._compacted + 1 :]])

    def tail(self, batch: int) -> pa.Table | None:
        """Return the changes after that batch; None if a later compaction has replaced them or if there are none."""
        if batch < self._compacted or batch + 1 == len(self._changes):
            return None
        return pa.concat_tables(self._changes[batch + 1 :])
