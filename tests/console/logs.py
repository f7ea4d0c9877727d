"""Small applications whose operators have processed records into real logs, without Spark and without a broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa

from tests.metadata import described, small_meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts, PartitionChange, Pin, Reading
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.operator import OperatorState, StepResult, TableReader
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import columns_of, operator_for
from tidegate.runtime.configuration.application import Application, application_of, settings_of
from tidegate.runtime.doctor.change_preview import table_state
from tidegate.runtime.telemetry.batch_metrics import figures_after
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import log_after
from tidegate.state.lake.opening import open_lake
from tidegate.state.upkeep.compaction import Kept, compact

START_MS = 1_700_000_000_000

SUPPRESSION: dict[str, Any] = {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "10s"}}
TABLE: dict[str, Any] = {"kind": "table_history", "input": "in", "history_retention": "1h"}
WINDOWS: dict[str, Any] = {
    "kind": "windowed_aggregation",
    "input": "in",
    "window": {"tumbling": "1m", "grace": "0"},
    "aggregate": {"n": "count"},
    "emit": "final",
}
PIPELINE: dict[str, Any] = {
    "kind": "pipeline",
    "input": {"topic": "in", "value": {"json": {"delay": "int64"}}},
    "steps": [
        {"filter": "delay > 0"},
        {"name": "limited", "kind": "suppression", "until": {"time_limit": "10s"}},
    ],
}


def application(folder: Path, **operators: dict[str, Any]) -> Application:
    """An application with these operators, and a broker that does not answer."""
    return application_of(
        {
            "application": "app",
            "lake": str(folder / "lake"),
            "state": str(folder / "state"),
            "keep_output": "forever",
            "control": None,
            "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "operators": operators,
        }
    )


def record(key: bytes | None, value: bytes | None, second: int, offset: int) -> Row:
    """A record of that second."""
    return Row(key, value, START_MS + second * 1_000, offset)


@dataclass
class Written:
    """The log of an operator, and the states of its partitions; each call makes one batch.

    A table that the operator reads is read as of its newest batch. `records`: all that were read, by partition.
    """

    application: Application
    name: str
    states: dict[int, OperatorState] = field(default_factory=dict)
    records: dict[int, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.config = self.application.operators[self.name]
        self.operator = operator_for(self.config)
        lake = open_lake(self.application.lake / self.name)
        self.log = OperatorLog.open(lake, self.name, log_schema(columns_of(self.config)), create=True)
        plain = small_meta(operator=self.name, table_id=self.log.table_id, batch=0, action="claim", clock=START_MS)
        claim = described(plain, input=self.config.input, settings=settings_of(self.config), next_offset={0: 0, 1: 0})
        self.log.commit(claim, [])

    def operator_of(self, step: str | None) -> OperatorRules:
        """The rules of the operator, or of a step of it; of a step that it does not have, those of the operator."""
        return self.config.operators.get(step or "", self.config)

    @property
    def newest(self) -> BatchMeta:
        """The metadata of the newest batch."""
        found = self.log.newest()
        assert found is not None
        return found

    def batch(self, records: Sequence[Row], partition: int = 0, topic: str | None = None) -> int:
        """A batch with these records of one partition of the first input topic, or of another one; gives its number."""
        self.records[partition] += records
        state, inputs = self._state(partition)
        clock = self.newest.clock + 1_000
        result = state.step(Records.from_rows(records), clock)
        return self.commit(partition, result, len(records), topic=topic, inputs=inputs)

    def flush(self, partition: int = 0) -> int:
        """A batch that flushes the partition; gives its number."""
        state, inputs = self._state(partition)
        return self.commit(partition, state.flush(), 0, action="flush", inputs=inputs)

    def advance(self, second: int, partition: int = 0) -> int:
        """A batch that advances an idle partition to that second; gives its number."""
        state, inputs = self._state(partition)
        time = START_MS + second * 1_000
        return self.commit(partition, state.advance(time, self.newest.clock + 1_000), 0, action="idle", inputs=inputs)

    def read(self, before: BatchMeta, meta: BatchMeta, partition: int) -> Iterator[Records]:
        """The records that the batch has read, one by one, as a topic has them."""
        start, end = (known.partitions[partition].position for known in (before, meta))
        yield from (Records.from_rows([row]) for row in self.records[partition] if start <= row.offset < end)

    def _state(self, partition: int) -> tuple[OperatorState, dict[str, Pin]]:
        """The state of the partition, which has read its tables, and the versions of those."""
        state = self.states.setdefault(partition, self.operator.open(MemoryStorage(self.operator.layout)))
        pins = {}
        for table in (read.table for read in self.config.reads()):
            log = log_after(open_lake(self.application.lake / table), None)
            pins[table] = Pin(log.version, log.table_id)
            pinned = table_state(self.application, table, pins[table], partition)
            cast(TableReader, state).read_table(pinned, name=table)
        return state, pins

    def commit(
        self,
        partition: int,
        result: StepResult,
        count: int,
        *,
        topic: str | None = None,
        action: str = "batch",
        inputs: Mapping[str, Pin] | None = None,
    ) -> int:
        """The result is the next batch."""
        before, attempt = self.newest, uuid4().hex
        known = before.partitions[partition]
        totals = {name: number + asdict(result.counts)[name] for name, number in asdict(known.totals).items()}
        totals |= {"held": result.counts.held, "held_bytes": result.counts.held_bytes}
        changed = {
            partition: PartitionChange(counts=result.counts, measures=result.measures, ledger=dict(result.ledger))
        }
        meta = described(
            before,
            batch=before.batch + 1,
            attempt=attempt,
            action=action,
            clock=before.clock + 1_000,
            inputs=dict(inputs or {}),
            **self._read_to(before, partition, topic or self.config.input, count),
            stream_time={partition: result.stream_time},
            last={partition: (before.batch + 1, attempt)},
            totals={partition: Counts(**totals)},
            measured={partition: result.measures},
            figures=figures_after(before, changed, before.clock + 1_000),
        )
        tables = {
            "state": result.changes,
            "emission": result.emissions,
            "late": result.late,
            "rejected": result.rejected,
        }
        meta = replace(meta, changed=changed)
        rows = [Rows(kind, partition, table) for kind, table in tables.items()]
        naming = Naming(self.log.format, meta.batch, attempt, meta.clock)
        self.log.commit(meta, write_rows(self.log.lake, naming, rows, topic=self.config.input))
        return meta.batch

    def _read_to(self, before: BatchMeta, partition: int, topic: str, count: int) -> dict[str, dict[int, Any]]:
        """How far the batch has read, after so many records of the topic."""
        known = before.partitions[partition]
        if topic == self.config.input:
            return {"next_offset": {partition: known.next_offset + count}}
        reading = known.further.get(topic, Reading(0))
        return {"further": {partition: known.further | {topic: Reading(reading.next_offset + count)}}}

    def compact(self) -> int:
        """A compaction that drops superseded state rows, with a clean-up of all that it replaces."""
        batch = self.newest.batch + 1
        clock = self.newest.clock + 1_000
        meta = replace(
            self.newest,
            batch=batch,
            attempt=uuid4().hex,
            action="compaction",
            clock=clock,
            compacted=batch,
            recorded=batch - 1,
            changed={},
        )
        compact(self.log, meta, Kept(slot=self.operator.slot), rewind_window_ms=0)
        return batch


def table_of(rows: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of the rows, as tuples."""
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
