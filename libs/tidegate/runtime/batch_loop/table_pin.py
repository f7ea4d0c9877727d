"""The table that an operator reads, pinned at a Delta version for each batch.

Another service writes the table's log; it is only read here, entry by entry. A pin is the newest version that there is;
what the entries added is remembered for a while, so that a replica is caught up from their files, compaction or not.
The table's configuration is that of the pin too: its service may have gone on under another one than the reader's file
had, and a version of the log means the same to whoever reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.errors import StartOver, StateError, Unavailable, UserError
from tidegate.contracts.event_time import ALWAYS, NO_STREAM_TIME
from tidegate.contracts.kill_points import reach
from tidegate.contracts.naming import log_path
from tidegate.contracts.schema import BatchMeta, Pin, after_document
from tidegate.runtime.batch_loop.alignment import Gates, Renewal
from tidegate.runtime.configuration.application import Application, config_of
from tidegate.runtime.messages import PartitionPlan, PartitionResult, TablePlan
from tidegate.state.batch_metadata import touched
from tidegate.state.decisions import NO_COMMIT, Commit, Wanted
from tidegate.state.delta_log.actions import data_file
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_entries import (
    document_of,
    newest_version,
    print_of,
    read_actions,
)
from tidegate.state.delta_log.operator_log import OperatorLog

REMEMBERED = 256
"""Commits of a partition whose files are known; a replica that is older is rebuilt."""

MARGIN = 8
"""Commits before the one that the replica was last seen at: its attempt may have failed."""


class Added(NamedTuple):
    """A commit of the table's log that touched a partition, and the state file that it added, if it did."""

    commit: Commit
    file: DataFile | None


def pinned_table(application: Application, reader: str) -> PinnedTable | None:
    """The table that the operator reads; None: it reads none."""
    read = application.operators[reader].reads()
    if read is None:
        return None
    config, path = application.operators[read.table], log_path(application.lake, read.table)
    table = config.as_table()
    is_history = table is not None and table.history_retention is not None
    return PinnedTable(
        reader=reader,
        name=read.table,
        config=config,
        path=path,
        topic=config.input,
        lease=Renewal(reader=reader, log=path, grace=read.grace) if is_history else None,
        gates=Gates(grace=read.grace, wait=read.wait) if read.grace else None,
    )


@dataclass(kw_only=True)
class PinnedTable:
    """The log of a table as its reader knows it. `topic`: what the table reads.

    `config`: what the table was written under as of the pin; the file's for a log that does not tell it.
    `added`: per partition the newest commits. `met`: per partition the table's newest batch that one of the reader met.
    `lease`: what the reader tells the table, where it has a history. `gates`: where the reader holds records for it.
    """

    reader: str
    name: str
    config: OperatorConfig
    path: Path
    topic: str = ""
    lease: Renewal | None = None
    gates: Gates | None = None
    version: int = -1
    added: dict[int, list[Added]] = field(default_factory=dict)
    met: dict[int, int] = field(default_factory=dict)
    meta: BatchMeta | None = None
    _print: tuple[int, int] | None = None

    @property
    def inputs(self) -> dict[str, Pin]:
        """The pin, as a batch's metadata has it."""
        return {self.name: Pin(self.version, self._meta().table_id)}

    def open(self, newest: BatchMeta, clock_ms: int = 0) -> None:
        """Pin the newest version, after the table was told what is needed of it (`clock_ms`: the wall clock).

        Unavailable while there is no log, or one that nobody has claimed. UserError for another number of partitions
        than the reader's, StateError for a log that is another one than it has read, or older.
        """
        self.meta, self.added, self.met = None, {}, {}
        if self.gates is not None:
            self.gates = Gates(grace=self.gates.grace, wait=self.gates.wait)
        if self.lease is not None and newest_version(self.path) is not None:
            self.lease.first(newest, clock_ms)
            reach("after_lease")
        version = newest_version(self.path)
        meta = None if version is None else OperatorLog.at(self.path, version).newest()
        if version is None or meta is None:
            raise Unavailable(f"the table {self.name} has no log yet", value=self.path, remedy="start its service")
        read = newest.inputs.get(self.name)
        if read is not None and read.table_id:
            self._refuse_another(meta.table_id, read.table_id)
        self._refuse_other_partitions(meta, newest)
        if read is not None and version < read.version:
            raise StateError(
                f"the log of the table {self.name} is older than what {self.reader} has read of it",
                value=f"version {version}, read: {read.version}",
                remedy="bring the newer log back from a copy, or give the reader another name to begin anew",
            )
        self._stand_at(version)
        self._note(meta)
        self._remember_entries_before(version)

    def pin(self) -> int:
        """The newest version, whose metadata `meta` has. StateError if somebody else changed the log.

        StartOver where the entry of the pin is no longer the one that was pinned: what stands there now is looked at as
        at a start.
        """
        while (actions := read_actions(self.path, self.version + 1)) is not None:
            self._take(actions)
            self._stand_at(self.version + 1)
        if self._print is None or print_of(self.path, self.version) != self._print:
            raise StartOver(
                f"the log of the table {self.name} is no longer the one that was pinned",
                value=f"version {self.version} of {self.path}",
                remedy="none is needed after its folder was copied or cleaned up behind a reader that stood still",
            )
        return self.version

    def _stand_at(self, version: int) -> None:
        self.version, self._print = version, print_of(self.path, version)

    def stream_time(self, partition: int) -> int:
        """T of the table's partition at the pin."""
        return self._meta().stream_time.get(partition, NO_STREAM_TIME)

    def plan(self, plan: PartitionPlan) -> TablePlan:
        """What a task needs to have the partition's replica at the pin."""
        meta, partition = self._meta(), plan.partition
        tail = self._tail(partition)
        return TablePlan(
            name=f"{self.reader}.{self.name}",
            config=self.config,
            log=self.path,
            version=self.version,
            table_id=meta.table_id,
            stream_time=self.stream_time(partition),
            wanted=Wanted(
                epoch=plan.wanted.epoch,
                batch=meta.batch,
                last=meta.last.get(partition),
                lineage=tuple(added.commit for added in tail),
            ),
            tail=tuple(added.file for added in tail[1:] if added.file is not None),
            floor=meta.floor.get(partition),
            open_until=ALWAYS if self.gates is None else self.gates.open_until(plan, self._read(partition)),
        )

    def note_used(self, plans: Sequence[PartitionPlan], results: Sequence[PartitionResult], clock_ms: int) -> None:
        """The replicas of those partitions equal the pin, in a batch of that clock."""
        last, tables = self._meta().last, {plan.partition: plan.table for plan in plans}
        for result in results:
            self.met[result.partition] = last.get(result.partition, NO_COMMIT)[0]
            table = tables[result.partition]
            if self.gates is not None and table is not None:
                self.gates.note_used(result, table.open_until, clock_ms)

    def moved(self, newest: BatchMeta, now_ms: int) -> set[int]:
        """The partitions in which what waits for the table may go on: it has read on, or it was waited for."""
        if self.gates is None:
            return set()
        held = (partition for partition, counts in newest.totals.items() if counts.held)
        return {p for p in held if self.gates.may_go_on(newest, p, self._read(p), now_ms)}

    def _read(self, partition: int) -> int:
        """How far the table has read its topic at the pin."""
        return self._meta().offsets.get(self.topic, {}).get(partition, 0)

    def _tail(self, partition: int) -> list[Added]:
        """The commits from somewhat before the replica's on; all that are known if it was not seen yet."""
        known, met = self.added.get(partition, []), self.met.get(partition)
        newer = sum(added.commit[0] > met for added in known) if met is not None else len(known)
        return known[-(newer + MARGIN) :]

    def _meta(self) -> BatchMeta:
        if self.meta is None:
            raise AssertionError("a pin before the table was opened")
        return self.meta

    def _remember_entries_before(self, version: int) -> None:
        entries: list[list[dict[str, Any]]] = []
        while len(entries) < REMEMBERED and (actions := read_actions(self.path, version - len(entries))) is not None:
            entries.append(actions)
        for actions in reversed(entries):
            self._take(actions)

    def _take(self, actions: Sequence[dict[str, Any]]) -> None:
        """The entry is known: its metadata, and the state files that it added."""
        document = document_of(actions)
        adds = [action["add"] for action in actions if "add" in action]
        files = {file.partition: file for file in map(data_file, adds) if file.kind == "state"}
        if document is None:
            self._refuse_foreign(actions)
            return
        if self.meta is not None:
            self._refuse_another(document["table_id"], self.meta.table_id)
        if self.meta is None or document["batch"] > self.meta.batch:
            self._note(after_document(self.meta, document))
        for partition in touched(document):
            known = self.added.setdefault(partition, [])
            known.append(Added((document["batch"], document["attempt"]), files.get(partition)))
            del known[:-REMEMBERED]

    def _note(self, meta: BatchMeta) -> None:
        """The table's newest metadata is that, and its readers look versions up as its own service keeps them."""
        if meta.settings and (self.meta is None or meta.config != self.meta.config):
            self.config = config_of(meta.settings)
        self.meta = meta

    def _refuse_another(self, found: str, read: str) -> None:
        if found != read:
            raise StateError(
                f"the log of the table {self.name} is another log than {self.reader} has read",
                value=f"table id {found}, was {read}, in {self.path}",
                remedy="bring the former log back; or give the reader another name, to begin anew with this one",
            )

    def _refuse_foreign(self, actions: Sequence[dict[str, Any]]) -> None:
        changes = [action[name] for action in actions for name in ("add", "remove") if name in action]
        if any(change.get("dataChange", True) for change in changes):
            raise StateError(
                f"somebody else changed data in the log of the table {self.name}",
                value=f"{self.path}, version {self.version + 1}",
                remedy="start the table's service: it says what to do",
            )

    def _refuse_other_partitions(self, table: BatchMeta, reader: BatchMeta) -> None:
        counts = [sum(map(len, meta.offsets.values())) for meta in (table, reader)]
        if counts[0] != counts[1]:
            raise UserError(
                f"{self.reader} and its table {self.name} have different numbers of partitions",
                value=f"{counts[1]} and {counts[0]}",
                remedy="records meet by partition: give both topics the same number of partitions",
            )
