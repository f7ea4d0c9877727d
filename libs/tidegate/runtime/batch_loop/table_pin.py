"""The tables that an operator reads, each pinned at a Delta version for each batch.

Another service writes a table's log; this module only reads it, entry by entry. The pin is the newest version. The
files that recent entries added are remembered, so that a replica is caught up from them, even across a compaction. The
table's configuration is taken from the pinned metadata, too: the table's service may run under another configuration
than the reader's file has, and a version of the log must mean the same to every reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta, Pin, after_document
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.errors import StartOver, StateError, Unavailable, UserError
from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.kill_points import reach
from tidegate.runtime.batch_loop.table_stream_alignment import Gates, Renewal
from tidegate.runtime.configuration.application import Application, config_of
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.task.messages import PartitionPlan, PartitionResult, TablePlan
from tidegate.state.alignment_decisions import Offsets
from tidegate.state.delta_log.actions import data_file
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_entries import (
    document_of,
    entry_key,
    newest_version,
    read_actions,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import touched
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import NO_COMMIT, Commit, Wanted

REMEMBERED = 256
"""How many commits of a partition are remembered with their files; an older replica is rebuilt."""

MARGIN = 8
"""Further commits passed to a task, before the replica's last known one: the attempt that moved it may have failed."""


class Added(NamedTuple):
    """A commit of the table's log that touched a partition, with the state file that it added, if any."""

    commit: Commit
    file: DataFile | None


def open_tables(
    application: Application,
    reader: str,
    newest: BatchMeta,
    clock_ms: int,
    opened: Callable[[Place], Lake] = open_lake,
) -> PinnedTables:
    """Return the tables that the operator reads, each pinned as `TableSource.open` describes.

    `opened` opens the lake of a table.
    """
    reads = application.operators[reader].reads()
    sources = [_source(application, reader, read, opened(application.lake / read.table)) for read in reads]
    return PinnedTables([source.open(newest, clock_ms) for source in sources])


def _source(application: Application, reader: str, read: TableRead, log: Lake) -> TableSource:
    config = application.operators[read.table]
    table = config.as_table()
    is_history = table is not None and table.history_retention is not None
    return TableSource(
        reader=reader,
        name=read.table,
        config=config,
        log=log,
        topics=config.inputs,
        lease=Renewal(reader=reader, log=log, read=read) if is_history else None,
        gates=Gates(read=read) if read.grace else None,
    )


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """The place of one reader's table, and the rules by which the reader waits for it.

    `config`: the table's configuration in the reader's file. `topics`: the input topics of the table. `lease`: set
    if the table keeps a history. `gates`: set if the reader holds records for a grace.
    """

    reader: str
    name: str
    config: OperatorConfig
    log: Lake
    topics: tuple[str, ...] = ()
    lease: Renewal | None = None
    gates: Gates | None = None

    def open(self, newest: BatchMeta, clock_ms: int = 0) -> PinnedTable:
        """Write the lease, if the table keeps a history, then pin the newest version (`clock_ms`: the wall clock).

        Raise Unavailable while the table has no log or nobody has claimed it; UserError if its number of partitions
        differs from the reader's; StateError if the log is not the one that the reader has read, or is older.
        """
        if self.lease is not None and newest_version(self.log) is not None:
            # rule: lease-before-pin
            self.lease.first(newest, clock_ms)
            reach("after_lease")
        version = newest_version(self.log)
        meta = None if version is None else LogVersion.at(self.log, version).newest()
        if version is None or meta is None:
            # rule: wait-for-table
            raise Unavailable(f"the table {self.name} has no log yet", value=self.log.place, remedy="start its service")
        read = newest.inputs.get(self.name)
        if read is not None and read.table_id:
            # rule: same-table
            self.refuse_another(meta.table_id, read.table_id)
        # rule: table-partitions
        self._refuse_other_partitions(meta, newest)
        # rule: table-not-older/opened
        if read is not None and version < read.version:
            raise StateError(
                f"the log of the table {self.name} is older than what {self.reader} has read of it",
                value=f"version {version}, read: {read.version}",
                remedy="restore the newer log from a copy, or give the join a new name to start from the beginning",
            )
        return PinnedTable(self, version, meta)

    def refuse_another(self, found: str, read: str) -> None:
        """Raise StateError if the table id that was found is not the one that the reader has read."""
        if found != read:
            raise StateError(
                f"the log of the table {self.name} is not the log that {self.reader} has read",
                value=f"table id {found}, was {read}, in {self.log.place}",
                remedy="restore the former log, or give the join a new name to start from the beginning with this one",
            )

    def _refuse_other_partitions(self, table: BatchMeta, reader: BatchMeta) -> None:
        counts = [len(meta.partitions) for meta in (table, reader)]
        if counts[0] != counts[1]:
            raise UserError(
                f"{self.reader} and its table {self.name} have different numbers of partitions",
                value=f"{counts[1]} and {counts[0]}",
                remedy="give both topics the same number of partitions, because a join reads its table partition by "
                "partition; rescale the join, then the table",
            )


class PinnedTable:
    """The table of one reader, pinned at a version of its log.

    `version`, `meta`: the pin, and the table's metadata at it. `config`: the configuration that the table was written
    under at the pin; that of the file if the log lacks it. `added`: per partition the newest commits.
    `replica_batches`: per partition the newest batch of the table that a batch of the reader has seen.
    """

    def __init__(self, source: TableSource, version: int, meta: BatchMeta) -> None:
        self.source, self.name, self.log, self.gates = source, source.name, source.log, source.gates
        self.version, self._etag = version, source.log.etag(entry_key(version))
        self.meta = meta
        self.config = config_of(meta.settings) if meta.settings else source.config
        self.added: dict[int, list[Added]] = {}
        self.replica_batches: dict[int, int] = {}
        # rule: replica-catch-up/tail
        self._remember_entries_before(version)

    def pin(self) -> int:
        """Pin the newest version, update `meta` to it, and return it.

        Raise StateError if something other than Tidegate changed data in the log. Raise StartOver if the entry of the
        pin was replaced or removed: the log is then checked again as at a start.
        """
        while (actions := read_actions(self.log, self.version + 1)) is not None:
            self._take(actions)
            # rule: pin-newest
            self._stand_at(self.version + 1)
        # rule: same-table/running
        if self._etag is None or self.log.etag(entry_key(self.version)) != self._etag:
            raise StartOver(
                f"the log of the table {self.name} is no longer the one that was pinned",
                value=f"version {self.version} of {self.log.place}",
                remedy="do nothing if the folder was copied, or cleaned up while the join was stopped",
            )
        return self.version

    def _stand_at(self, version: int) -> None:
        self.version, self._etag = version, self.log.etag(entry_key(version))

    def stream_time(self, partition: int) -> int:
        """Return the stream time of the table's partition at the pin."""
        return self.meta.partitions[partition].stream_time

    def plan(self, plan: PartitionPlan) -> TablePlan:
        """Return what a task needs to bring the partition's replica to the pin."""
        partition = plan.partition
        known = self.meta.partitions[partition]
        tail = self._tail(partition)
        # rule: replica-catch-up/lineage, replica-never-back, replica-floor
        return TablePlan(
            name=f"{self.source.reader}.{self.name}",
            config=self.config,
            log=self.log,
            version=self.version,
            table_id=self.meta.table_id,
            stream_time=known.stream_time,
            wanted=Wanted(
                epoch=plan.wanted.epoch,
                batch=self.meta.batch,
                last=known.last,
                lineage=tuple(added.commit for added in tail),
            ),
            tail=tuple(added.file for added in tail[1:] if added.file is not None),
            floor=known.floor,
            open_until=ALWAYS if self.gates is None else self.gates.open_until(plan, self._read(partition)),
        )

    def note_used(self, plans: Sequence[PartitionPlan], results: Sequence[PartitionResult], clock_ms: int) -> None:
        """Note that, after a batch at `clock_ms`, the replicas of its partitions equal the pin."""
        known, tables = self.meta.partitions, {plan.partition: plan.tables for plan in plans}
        for result in results:
            self.replica_batches[result.partition] = (known[result.partition].last or NO_COMMIT)[0]
            if self.gates is not None:
                self.gates.note_used(result, tables[result.partition][self.name].open_until, clock_ms)

    def partitions_to_resume(self, newest: BatchMeta, now_ms: int) -> set[int]:
        """Return the partitions whose waiting records may continue: the table has caught up, or the longest wait is
        over."""
        if self.gates is None:
            return set()
        held = (partition for partition, known in newest.partitions.items() if known.totals.held)
        return {p for p in held if self.gates.should_retry(newest, p, self._read(p), now_ms)}

    def _read(self, partition: int) -> Offsets:
        """Return the offsets up to which the table has read its topics at the pin."""
        known = self.meta.partitions[partition]
        return (known.next_offset, *(known.further[topic].next_offset for topic in self.source.topics[1:]))

    def _tail(self, partition: int) -> list[Added]:
        """Return the commits since somewhat before the replica's; all remembered ones if no batch has shown it yet."""
        known, replica = self.added.get(partition, []), self.replica_batches.get(partition)
        newer = sum(added.commit[0] > replica for added in known) if replica is not None else len(known)
        return known[-(newer + MARGIN) :]

    def _remember_entries_before(self, version: int) -> None:
        entries: list[list[dict[str, Any]]] = []
        while len(entries) < REMEMBERED and (actions := read_actions(self.log, version - len(entries))) is not None:
            entries.append(actions)
        for actions in reversed(entries):
            self._take(actions)

    def _take(self, actions: Sequence[dict[str, Any]]) -> None:
        """Process a log entry: take over its metadata and remember the state files that it added."""
        document = document_of(actions)
        adds = [action["add"] for action in actions if "add" in action]
        parts = ((file, part) for file in map(data_file, adds) for part in file.parts or ())
        files = {part.partition: file.part(part) for file, part in parts if part.kind == "state"}
        if document is None:
            # rule: table-not-older/taken
            self._refuse_foreign(actions)
            return
        # rule: same-table
        self.source.refuse_another(document["table_id"], self.meta.table_id)
        if document["batch"] > self.meta.batch:
            self._note(after_document(self.meta, document))
        for partition in touched(document):
            known = self.added.setdefault(partition, [])
            known.append(Added((document["batch"], document["attempt"]), files.get(partition)))
            del known[:-REMEMBERED]

    def _note(self, meta: BatchMeta) -> None:
        """Take over the table's newest metadata, and the configuration in it: lookups follow what its service keeps."""
        if len(meta.partitions) != len(self.meta.partitions):
            # rule: rescaled-table-noticed
            raise StartOver("the table was rescaled", value=f"{self.name}: {len(meta.partitions)} partitions")
        if meta.settings and meta.config != self.meta.config:
            self.config = config_of(meta.settings)
        self.meta = meta

    def _refuse_foreign(self, actions: Sequence[dict[str, Any]]) -> None:
        changes = [action[name] for action in actions for name in ("add", "remove") if name in action]
        # rule: optimize-keeps-metadata
        if any(change.get("dataChange", True) for change in changes):
            raise StateError(
                f"another program changed data in the log of the table {self.name}",
                value=f"{self.log.place}, version {self.version + 1}",
                remedy="start the table's service: it says what to do",
            )


class PinnedTables:
    """The tables that one operator reads, by the names of the tables; none if it reads no table.

    A batch reads all of them at their pins. Each has a lease and gates of its own.
    """

    def __init__(self, tables: Sequence[PinnedTable] = ()) -> None:
        self._tables = {table.name: table for table in tables}
        self._gates = [(table.name, table.gates) for table in tables if table.gates is not None]

    @property
    def inputs(self) -> dict[str, Pin]:
        """Return the pins in the form of a batch's metadata."""
        return {name: Pin(table.version, table.meta.table_id) for name, table in self._tables.items()}

    def pin_after_ends(self, newest: BatchMeta, kafka: Callable[[], KafkaClient]) -> None:
        """Pin the newest version of each table. Of a table with gates, first read the ends of its topics.

        Those of the stream must have been read before that.
        """
        for table in self._tables.values():
            if table.gates is not None:
                table.gates.note_ends(newest, [offsets.latest(kafka(), topic) for topic in table.source.topics])
            table.pin()

    def pinned(self, plans: Sequence[PartitionPlan]) -> Sequence[PartitionPlan]:
        """Pin the newest version of each table, and return the plans with what their tasks need of these."""
        for table in self._tables.values():
            table.pin()
        return [
            replace(plan, tables={name: table.plan(plan) for name, table in self._tables.items()}) for plan in plans
        ]

    def note_used(self, plans: Sequence[PartitionPlan], results: Sequence[PartitionResult], clock_ms: int) -> None:
        """Note that, after a batch at `clock_ms`, the replicas of its partitions equal the pins."""
        for table in self._tables.values():
            table.note_used(plans, results, clock_ms)

    def partitions_to_resume(self, newest: BatchMeta, now_ms: int) -> set[int]:
        """Return the partitions whose waiting records may continue: a table has caught up, or the longest wait for it
        is over."""
        return {p for table in self._tables.values() for p in table.partitions_to_resume(newest, now_ms)}

    def waiting(self) -> dict[str, list[int]]:
        """Return the partitions with due records that wait only for a table, by the name of that table."""
        return {name: waiting for name, gates in self._gates if (waiting := gates.waiting())}

    def full(self) -> set[int]:
        """Return the partitions in which so much waits that their stream must not be read any further."""
        return {partition for _, gates in self._gates for partition in gates.full()}

    def nothing_waits(self, newest: BatchMeta) -> bool:
        """Return whether it is known that no record waits for a table."""
        return all(gates.nothing_waits(newest) for _, gates in self._gates)

    def renew_leases(self, newest: BatchMeta, clock_ms: int) -> None:
        """Renew the lease on each table that keeps a history."""
        for table in self._tables.values():
            if table.source.lease is not None:
                table.source.lease.renew(newest, clock_ms)
