"""Small logs, batches and drivers for the tests of `tidegate.state`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.lakes import lake_at
from tests.metadata import described, small_meta
from tests.state.tally_operator import Tally, TallyState
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.records import Records, Row
from tidegate.state.delta_log import operator_log
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_entries import oldest_version
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.lake.place import Place
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.recovery import PartitionLog, Recovered, recover
from tidegate.state.protocol_decisions import Commit, Wanted
from tidegate.state.upkeep.cleanup import clean_up
from tidegate.state.upkeep.compaction import Kept, compact

OPERATOR = "tally"
SCHEMA = log_schema()
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


def new_log(path: Path | Place) -> OperatorLog:
    """An empty log."""
    return OperatorLog.open(lake_at(path), OPERATOR, SCHEMA, create=True)


def reopened(log: OperatorLog) -> OperatorLog:
    """Another driver's handle on the same log."""
    return OperatorLog.open(log.lake, OPERATOR, SCHEMA, create=False)


def clock_of(batch: float) -> int:
    """When the batch was run, unless told otherwise: one a second."""
    return START_MS + int(batch * 1_000)


def meta(log: OperatorLog, batch: int, *, epoch: int = 1, attempt: str = "", **more: object) -> BatchMeta:
    """The metadata of a batch."""
    newest = log.newest()
    plain = small_meta(
        operator=OPERATOR,
        table_id=log.table_id,
        epoch=epoch,
        batch=batch,
        attempt=attempt or uuid4().hex,
        clock=clock_of(batch),
        config="",
        input="in",
        compacted=batch if more.get("action") == "compaction" else newest.compacted if newest else 0,
        recorded=batch - 1 if more.get("action") == "compaction" else newest.recorded if newest else -1,
    )
    return described(plain, **more)


def rows(*texts: str) -> pa.Table:
    """Rows with a key and a value each."""
    return pa.table({"key": [text.encode() for text in texts], "value": [text.encode() for text in texts]})


def files(log: OperatorLog, batch: BatchMeta, tables: Mapping[tuple[str, int], pa.Table]) -> list[DataFile]:
    """The data file of the batch; in a partitioned log one per (kind, partition)."""
    naming = Naming(log.format, batch.batch, batch.attempt, batch.clock)
    return list(write_rows(log.lake, naming, [Rows(*part, table) for part, table in tables.items()], topic="t"))


def a_file(
    log: OperatorLog, kind: str, partition: int, table: pa.Table, *, batch: int, attempt: str, topic: str = "t"
) -> DataFile:
    """A data file of an attempt at the batch, with rows of one kind and partition."""
    (file,) = write_rows(log.lake, Naming(log.format, batch, attempt, 0), [Rows(kind, partition, table)], topic=topic)
    return file


def commit_rows(log: OperatorLog, batch: int, tables: Mapping[tuple[str, int], pa.Table], **more: object) -> BatchMeta:
    """The batch with those rows is committed."""
    committed = meta(log, batch, **more)  # type: ignore[arg-type]
    log.commit(committed, files(log, committed, tables))
    return committed


def compact_as(log: OperatorLog, batch: int) -> None:
    """The log is compacted, as that batch."""
    compaction = meta(log, batch, action="compaction")
    compact(log, compaction, Kept(slot=("key",)), rewind_window_ms=HOUR_MS)


def aged_log(folder: Path | Place, monkeypatch: pytest.MonkeyPatch) -> OperatorLog:
    """A log with several checkpoints and two compactions, at version 24, that begins with version 10."""
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 5)
    log = new_log(folder / OPERATOR)
    for batch in range(1, 25):
        if batch % 9:
            commit_rows(log, batch, {("state", 0): rows("a"), ("emission", 1): rows(f"e{batch}")})
        else:
            compact_as(log, batch)
    clean_up(log, clock_ms=clock_of(12) + HOUR_MS + 1, rewind_window_ms=0)
    assert oldest_version(log.lake, log.version) == 10
    return log


@dataclass
class MiniDriver:
    """One operator with one partition, its log and its local state; keeps the books that a driver keeps."""

    root: Path
    log: OperatorLog = field(init=False)
    last: Commit | None = None
    lineage: list[Commit] = field(default_factory=list)
    snapshot: int = -1
    stream_time: int = NO_STREAM_TIME
    batch: int = 0
    epoch: int = 1

    def __post_init__(self) -> None:
        self.log = new_log(self.root / "lake" / OPERATOR)

    def lock(self) -> object:
        """The partition's local state, for the next batch."""
        return LocalState.lock(
            self.root / "state", 0, operator=OPERATOR, table_id=self.log.table_id, token=(self.epoch, self.batch + 1)
        )

    def recover(self, local: LocalState) -> Recovered:
        """The state that the next batch starts from."""
        wanted = Wanted(
            epoch=self.epoch,
            batch=self.batch + 1,
            last=self.last,
            lineage=tuple(self.lineage),
            snapshot=self.snapshot,
        )
        source = PartitionLog(log=self.log.lake, version=self.log.version, partition=0, stream_time=self.stream_time)
        return recover(local, Tally(), wanted, source)

    def run(self, records: Sequence[tuple[int, bool]], *, commits: bool = True) -> Recovered:
        """A batch of (key, kept) records; `commits=False`: its attempt fails after everything but the commit."""
        attempt = uuid4().hex
        listed = [
            Row(b"%d" % key, b"x" if kept else None, self.batch * 100 + i, i) for i, (key, kept) in enumerate(records)
        ]
        with self.lock() as local:  # type: ignore[attr-defined]
            recovered = self.recover(local)
            local.begin(self.epoch, self.batch + 1, attempt)
            step = recovered.state.step(Records.from_rows(listed), 0)
            local.complete(step.undo)
        if commits:
            self.commit(step.changes, attempt, step.stream_time)
        return recovered

    def commit(self, changes: pa.Table, attempt: str, stream_time: int) -> None:
        """The changes are the next batch."""
        commit_rows(self.log, self.batch + 1, {("state", 0): changes}, epoch=self.epoch, attempt=attempt)
        self.batch += 1
        self.last, self.stream_time = (self.batch, attempt), stream_time
        self.lineage.append(self.last)

    def compact(self) -> None:
        """The log is compacted, in a batch of its own."""
        self.batch += 1
        compaction = meta(self.log, self.batch, epoch=self.epoch, action="compaction")
        compact(self.log, compaction, Kept(slot=("key",)), rewind_window_ms=HOUR_MS)
        self.snapshot = self.batch

    def state(self) -> dict[int, int]:
        """What the next batch would start from."""
        with self.lock() as local:  # type: ignore[attr-defined]
            state = self.recover(local).state
            assert isinstance(state, TallyState)
            assert state.stream_time == self.stream_time
            return state.held()
