"""What must be true of a table and its join, played together.

The table's oracle knows its state at every version of its log, so that the join's can look up in the one that a batch
was pinned to. At the end the law of `docs/protocol.md` is checked: whatever went wrong, each record that was not late
has met the version that the whole table has, and they left in one order.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.event_time import ALWAYS, NEVER, NO_STREAM_TIME
from tidegate.contracts.operator import OperatorState, ReadTable, StepResult
from tidegate.contracts.records import Row
from tidegate.contracts.schema import BatchMeta
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.testing.laws import Partition
from tidegate.testing.simulation.judges.oracle import Oracle, Violation
from tidegate.testing.simulation.settings import GRACE_MS, TABLE

Met = tuple[int, int | None]
"""A record's offset, and the valid_from of the version that it met."""


class TableOracle(Oracle):
    """Follows the table; `reader` is the join's oracle."""

    reader: Oracle

    def __init__(self, config: OperatorConfig, partitions: int) -> None:
        super().__init__(config, partitions)
        self._states: dict[tuple[int, int], tuple[pa.Table, int, int]] = {}

    def state_at(self, version: int, partition: int) -> OperatorState:
        """The partition's state at that version of the log; Violation if the log has none."""
        if (version, partition) not in self._states:
            raise Violation(f"nobody has put version {version} of the table's log, in which its join looks up")
        operator = operator_for(self._config)
        state = operator.open(MemoryStorage(operator.layout))
        rows, stream_time, floor = self._states[version, partition]
        state.restore(rows, stream_time)
        cast(ReadTable, state).hold(floor, floor)
        return state

    def rewritten(self, version: int) -> None:
        """The log has that version as well, of somebody else: it says what the one before says, in other files."""
        for partition in range(len(self._partitions)):
            self._states[version, partition] = self._states[version - 1, partition]

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        """The twin keeps what the batch says; Violation if that is less than the join needs."""
        reader, floor = self.reader.newest, meta.floor[partition]
        needs = NO_STREAM_TIME - GRACE_MS if reader is None else reader.needs.get(partition, NO_STREAM_TIME - GRACE_MS)
        if floor > max(before.floor.get(partition, NEVER), needs):
            raise Violation(f"batch {meta.batch} of the table: floor {floor} in {partition}, its join needs {needs}")
        twin.needs = floor
        cast(ReadTable, twin.state).hold(before.floor.get(partition, NEVER), floor)

    def _committed(self, meta: BatchMeta, ends: dict[int, int], version: int) -> None:
        super()._committed(meta, ends, version)
        for partition, twin in enumerate(self._partitions):
            told = (twin.state.snapshot(), twin.state.stream_time, meta.floor.get(partition, NEVER))
            self._states[version, partition] = told


class JoinOracle(Oracle):
    """Follows the join."""

    table: TableOracle

    def __init__(self, config: OperatorConfig, table: TableOracle, partitions: int) -> None:
        super().__init__(config, partitions)
        self.table = table
        table.reader = self
        self._met: list[list[Met]] = [[] for _ in range(partitions)]
        self._waiting = [0] * partitions

    def waits(self) -> bool:
        """True while records are held for the table alone."""
        return any(self._waiting)

    def came_and_was_due(self, partition: int) -> tuple[list[Any], list[Any]]:
        """What the records that were not late have met, in order, and what each has to meet in the whole table."""
        due = self._foretold(partition)
        met = [(offset, valid_from) for offset, valid_from in self._met[partition] if offset in due]
        in_order = sorted((row.timestamp, offset) for offset, row in self.inputs[partition].items() if offset in due)
        left = {offset for offset, _ in met}
        return met, [(offset, due[offset]) for _, offset in in_order if offset in left]

    def _foretold(self, partition: int) -> dict[int, int | None]:
        whole: dict[bytes, dict[int, Row]] = {}
        for _, row in sorted(self.table.inputs[partition].items()):
            if row.key is not None:
                whole.setdefault(row.key, {})[row.timestamp] = row
        found: dict[int, int | None] = {}
        time = NO_STREAM_TIME
        for offset, row in sorted(self.inputs[partition].items()):
            if row.key is None or row.value is None or row.timestamp < time - GRACE_MS:
                continue
            time = max(time, row.timestamp)
            versions = whole.get(row.key, {})
            since = max((since for since in versions if since <= row.timestamp), default=None)
            found[offset] = since if since is not None and versions[since].value is not None else None
        return found

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        state = self.table.state_at(meta.inputs[TABLE].version, partition)
        twin.read_table(state, meta.gates.get(partition, ALWAYS))

    def _note(self, partition: int, result: StepResult) -> None:
        rows = result.emissions.to_pylist()
        self._met[partition] += [(row["offset"], row["valid_from"]) for row in rows]
        self._waiting[partition] = result.measures["waiting_records_now"]
