"""Oracles for tables and the operator that joins them, which run together.

A table's oracle knows its state at every version of its log, so that the join's oracle can look up in the version
that a batch was pinned to. At the end the guarantee of `docs/protocol.md` is checked: whatever went wrong, each record
that was not late was joined to the version that the complete table has for it, and the results were emitted in one
order. So what a pipeline makes of them is what it makes of the whole input and the complete table in one batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.operator import OperatorState, ReadTable, StepResult, measured
from tidegate.contracts.records import Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Partition, Step, Table
from tidegate.testing.simulation.judges.oracle import Oracle, Violation
from tidegate.testing.simulation.settings import GRACE_MS

_FOREVER_MS = 10**9
"""Longer than any run lasts in event time."""
Met = tuple[int, int | None]
"""Offset of a stream record, and `valid_from` of the version that it was joined to (None: no version)."""


class _Version(NamedTuple):
    """A partition of a table at a version of its log. `records`: how many it had read."""

    rows: pa.Table
    stream_time: int
    floor: int
    records: int


class TableOracle(Oracle):
    """The oracle of the table; `reader` is the join's oracle."""

    reader: Oracle

    def __init__(self, config: OperatorConfig, partitions: int) -> None:
        super().__init__(config, partitions)
        self._states: dict[tuple[int, int], _Version] = {}
        self._records: list[list[Row]] = [[] for _ in range(partitions)]

    def state_at(self, version: int, partition: int) -> OperatorState:
        """Return the partition's state at that version of the log. Raise Violation if the log has no such version."""
        if (version, partition) not in self._states:
            raise Violation(f"the join was pinned to version {version} of the table's log, which was never written")
        operator, found = operator_for(self._config), self._states[version, partition]
        state = operator.open(MemoryStorage(operator.layout))
        state.restore(found.rows, found.stream_time)
        cast(ReadTable, state).hold(found.floor, found.floor)
        return state

    def as_read(self, version: int, partition: int) -> Table:
        """Return what a reference reads at that version of the log: the records that the table had read by then."""
        found = self._states[version, partition]
        return Table(self._config, tuple(self._records[partition][: found.records]), floor=found.floor)

    def note_foreign_version(self, version: int) -> None:
        """Note a version of the log that another program wrote; it has the data of the previous one in other files."""
        for partition in range(len(self._partitions)):
            self._states[version, partition] = self._states[version - 1, partition]

    def complete(self, partition: int) -> OperatorState:
        """Return the state of a table that forgets nothing, after the whole input."""
        rules = self._config.model_copy(update={"history_retention": _FOREVER_MS})
        topics = [inputs[partition] for inputs in self.inputs_by_topic.values()]
        return Table(rules, tuple(row for inputs in topics for _, row in sorted(inputs.items()))).state(0)

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        """Let the twin keep versions from the floor of the batch on. Raise Violation if the join needs older ones."""
        reader, floor = self.reader.newest, meta.partitions[partition].complete_from
        known = {} if reader is None else reader.partitions[partition].needs
        needs = known.get(self.input, NO_STREAM_TIME - GRACE_MS)
        if floor > max(before.partitions[partition].complete_from, needs, 0):  # no version is older than 0
            raise Violation(f"batch {meta.batch} of the table: floor {floor} in {partition}, its join needs {needs}")
        twin.needs = floor
        cast(ReadTable, twin.state).hold(before.partitions[partition].complete_from, floor)

    def _committed(self, meta: BatchMeta, ends: dict[int, int], version: int) -> None:
        super()._committed(meta, ends, version)
        for partition, twin in enumerate(self._partitions):
            self._states[version, partition] = _Version(
                rows=twin.state.snapshot(),
                stream_time=twin.state.stream_time,
                floor=meta.partitions[partition].complete_from,
                records=len(self._records[partition]),
            )

    def _note(self, partition: int, step: Step, result: StepResult) -> None:
        super()._note(partition, step, result)
        self._records[partition] += step if isinstance(step, list) else []


class ReaderOracle(Oracle):
    """The oracle of an operator that reads tables: a pipeline with joins."""

    tables: Mapping[str, TableOracle]

    def __init__(self, config: OperatorConfig, tables: Mapping[str, TableOracle], partitions: int) -> None:
        super().__init__(config, partitions)
        self.tables = tables
        for table in tables.values():
            table.reader = self
        self._waiting = [0] * partitions

    def is_waiting_for_table(self) -> bool:
        """Return True while records are held only because the table is behind."""
        return any(self._waiting)

    def _calm(self, partition: int) -> Partition:
        calm = super()._calm(partition)
        for name, table in self.tables.items():
            calm.read_table(table.complete(partition), name=name)
        return calm

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        for name, pin in meta.inputs.items():
            state = self.tables[name].state_at(pin.version, partition)
            twin.read_table(state, meta.changed[partition].open_until(name), name)

    def _note(self, partition: int, step: Step, result: StepResult) -> None:
        super()._note(partition, step, result)
        self._waiting[partition] = measured(result.measures, "waiting_records_now")


class JoinOracle(ReaderOracle):
    """The oracle of the join."""

    def __init__(self, config: OperatorConfig, tables: Mapping[str, TableOracle], partitions: int) -> None:
        super().__init__(config, tables, partitions)
        [self._table] = tables.values()
        self._met: list[list[Met]] = [[] for _ in range(partitions)]

    def actual_and_expected(self, partition: int) -> tuple[list[Any], list[Any]]:
        """Return the offsets and versions of the emitted records that were not late: the actual and the expected ones.

        The actual ones are the versions that the records were joined to, in order of emission; the expected ones are
        those of the complete table, in the order in which the records should have been emitted.
        """
        due = self._expected(partition)
        met = [(offset, valid_from) for offset, valid_from in self._met[partition] if offset in due]
        in_order = sorted((row.timestamp, offset) for offset, row in self.inputs[partition].items() if offset in due)
        left = {offset for offset, _ in met}
        return met, [(offset, due[offset]) for _, offset in in_order if offset in left]

    def _expected(self, partition: int) -> dict[int, int | None]:
        whole: dict[bytes, dict[int, Row]] = {}
        for _, row in sorted(self._table.inputs[partition].items()):
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

    def _note(self, partition: int, step: Step, result: StepResult) -> None:
        super()._note(partition, step, result)
        rows = result.emissions.to_pylist()
        self._met[partition] += [(row["offset"], row["valid_from"]) for row in rows]
