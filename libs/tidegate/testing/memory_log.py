"""What the laws need of an operator log, and the smallest one that does it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from tidegate.contracts.operator import StepResult


class LogUnderTest(Protocol):
    """A log of one partition: batches are numbered from 0 as they are committed."""

    def commit(self, result: StepResult) -> None:
        """The batch is in the log."""
        ...

    def compact(self) -> None:
        """A snapshot stands in the place of all state rows so far."""
        ...

    def rows(self) -> pa.Table:
        """The newest snapshot and the changes after it: what a new state is restored from."""
        ...

    def tail(self, batch: int) -> pa.Table | None:
        """The changes after that batch, for a state as of it; None where a later compaction has replaced them."""
        ...


class MemoryLog:
    """A LogUnderTest in process memory. `slot`: the columns that identify a changelog slot."""

    def __init__(self, slot: tuple[str, ...]) -> None:
        self._slot = slot
        self._snapshot: list[pa.Table] = []
        self._changes: list[pa.Table] = []
        self._compacted = -1

    def commit(self, result: StepResult) -> None:
        """The batch is in the log."""
        self._changes.append(result.changes)

    def compact(self) -> None:
        """The newest `put` of each slot that has not been deleted stands in the place of all rows so far."""
        if not self._changes:
            return
        rows = self.rows()
        newest = {tuple(row[column] for column in self._slot): at for at, row in enumerate(rows.to_pylist())}
        kept = [at for at in newest.values() if rows["op"][at].as_py() == "put"]
        self._snapshot = [rows.take(pa.array(kept, pa.int64()))]
        self._compacted = len(self._changes) - 1

    def rows(self) -> pa.Table:
        """The newest snapshot and the changes after it."""
        return pa.concat_tables([*self._snapshot, *self._changes[self._compacted + 1 :]])

    def tail(self, batch: int) -> pa.Table | None:
        """The changes after that batch; None where a later compaction has replaced them."""
        if batch < self._compacted or batch + 1 == len(self._changes):
            return None
        return pa.concat_tables(self._changes[batch + 1 :])
