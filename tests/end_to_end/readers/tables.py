"""A table whose log is written without a service: the operator's own changes, one commit a batch."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.lakes import named
from tests.state.logs import HOUR_MS, commit_rows, meta, new_log
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.table_history import TableHistory, TableHistoryRules
from tidegate.operators.table_history.versioned_table import VersionedTable
from tidegate.runtime.configuration.application import Application, application_of
from tidegate.state.lake.place import Place
from tidegate.state.upkeep.compaction import Kept, compact

TABLE, PARTITIONS = "facts", 2


class Write(NamedTuple):
    """What a producer sends; a null value is a tombstone."""

    partition: int
    key: bytes
    value: bytes | None
    timestamp: int


@dataclass
class TableLog:
    """A table in a lake of its own, and beside it what lookups say: a `VersionedTable` for each partition."""

    lake: Place
    rules: TableHistoryRules
    batch: int = 0
    lookups: list[VersionedTable] = field(default_factory=list)

    def __post_init__(self) -> None:
        operator = TableHistory(self.rules)
        self.slot = operator.slot
        self.log = new_log(self.lake / TABLE)
        self.states = [operator.open(MemoryStorage(operator.layout)) for _ in range(PARTITIONS)]
        retention = self.rules.history_retention or 0
        self.lookups = [VersionedTable(TABLE, history_retention_ms=retention) for _ in range(PARTITIONS)]

    @property
    def application(self) -> Application:
        """A configuration with the table."""
        operator = {"input": "facts", **self.rules.model_dump(exclude_none=True)}
        if retention := operator.get("history_retention"):
            operator["history_retention"] = f"{retention}ms"
        operator.pop("rewind_window")
        raw = {
            "application": "test",
            **named(self.lake),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": "nowhere:1"},
            "operators": {TABLE: operator},
        }
        return application_of(raw)

    def write(self, writes: Iterable[Write]) -> int:
        """The writes are a batch; gives the log's version."""
        self.batch += 1
        writes, tables = list(writes), {}
        for partition, state in enumerate(self.states):
            own = [write for write in writes if write.partition == partition]
            rows = [
                Row(write.key, write.value, write.timestamp, self.batch * 1_000 + at) for at, write in enumerate(own)
            ]
            tables["state", partition] = state.step(Records.from_rows(rows), 0).changes
            for write in own:
                self.lookups[partition].put(write.key, write.value, write.timestamp)
        commit_rows(self.log, self.batch, {name: rows for name, rows in tables.items() if len(rows)})
        return self.log.version

    def compact(self) -> None:
        """Live rows stand in one snapshot for each partition."""
        self.batch += 1
        compaction = meta(self.log, self.batch, action="compaction")
        compact(self.log, compaction, Kept(slot=self.slot), rewind_window_ms=HOUR_MS)

    def looked_up(self, timestamp: int) -> set[tuple]:
        """(partition, key, value, valid_from, valid_to) of every key that has a version at that time."""
        found = set()
        for partition, table in enumerate(self.lookups):
            for key in KEYS:
                if version := table.get(key, timestamp):
                    found.add((partition, key, *version))
        return found


KEYS = [b"", b"a", b"b", b"\xff\x00", b"k" * 300]


def random_writes(seed: int, count: int, first: int, span: int) -> list[Write]:
    """Writes out of order, with tombstones, of keys in the partitions of their numbers; some rewrite a version."""
    chance = random.Random(seed)

    def write(at: int) -> Write:
        number = chance.randrange(len(KEYS))
        value = None if chance.random() < 0.3 else b"%d" % at
        return Write(number % PARTITIONS, KEYS[number], value, first + chance.randrange(span))

    return [write(at) for at in range(count)]
