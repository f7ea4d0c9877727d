"""Align a table and the streams that are joined with it: what the table keeps, and when a join releases records.

The decisions are pure functions in `state.alignment_decisions`. `Readers` is the table's side: which versions its
batches keep for the operators that read it (its readers). `Renewal` and `Gates` are the reader's side: the lease that
says which versions the table must keep, and the held records that may be released.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta, Counts, PartitionMeta
from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.errors import EngineError
from tidegate.contracts.event_time import ALWAYS
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.task.messages import Hold, PartitionPlan, PartitionResult
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.state import leases
from tidegate.state.alignment_decisions import (
    Gate,
    Lease,
    Offsets,
    has_read,
    is_renewal_due,
    live_leases,
    needed,
    seen,
)
from tidegate.state.lake.port import Lake
from tidegate.state.upkeep.cleanup import MIN_WINDOW_MS

lines = logging.getLogger("tidegate")

MOST_WAITING_BYTES = 2**26
"""Bytes of records waiting for the table in a partition from which on its stream is not read any further."""

Seen = dict[str, tuple[int, int]]


@dataclass(kw_only=True)
class Readers:
    """The readers of one table, as seen by the table's driver."""

    table: str
    log: Lake
    rewind_window_ms: int
    _dead: frozenset[str] = frozenset()

    def held(self, newest: BatchMeta, partitions: Iterable[int], clock_ms: int) -> tuple[Seen, dict[int, Hold]]:
        """Read the leases; return the readers whose leases still count, and what each partition must keep for them."""
        found = leases.read(self.log, clock_ms)
        counting = live_leases(found, clock_ms, max(self.rewind_window_ms, MIN_WINDOW_MS))
        self._log_dead(found.keys() - counting.keys())
        readers = seen(newest.readers, counting)
        return readers, {
            partition: Hold(newest.partitions[partition].complete_from, needed(counting, readers, partition))
            for partition in partitions
        }

    def with_holds(
        self, newest: BatchMeta, plans: Sequence[PartitionPlan], clock_ms: int
    ) -> tuple[Seen, Sequence[PartitionPlan]]:
        """Return the readers whose leases still count, and the plans with what each partition must keep for them."""
        readers, holds = self.held(newest, [plan.partition for plan in plans], clock_ms)
        return readers, [replace(plan, hold=holds[plan.partition]) for plan in plans]

    def log_dropped_versions(
        self, plans: Sequence[PartitionPlan], results: Iterable[PartitionResult], batch: int
    ) -> None:
        """Log the partitions that dropped versions a reader needs, because `hold_for_readers` was exceeded."""
        holds = {plan.partition: plan.hold for plan in plans}
        for result in results:
            hold = holds.get(result.partition)
            if hold is None or result.floor is None or result.floor <= max(hold.floor, hold.needs):
                continue
            line = (
                "%s, partition %d: hold_for_readers was exceeded: versions before %d ms were dropped, although joins "
                "need those from %d ms on; such lookups are `expired`: check the joins, or raise hold_for_readers"
            )
            fields = log_fields(self.table, partition=result.partition, batch=batch)
            lines.warning(line, self.table, result.partition, result.floor, hold.needs, extra=fields)

    def _log_dead(self, dead: Iterable[str]) -> None:
        for reader in sorted(set(dead) - self._dead):
            line = "%s no longer waits for its reader %s: its lease is older than rewind_window; start it, or remove %s"
            lines.warning(
                line, self.table, reader, self.log.place / leases.key_of(reader), extra=log_fields(self.table)
            )
        self._dead = frozenset(dead)


class NoReaders:
    """The readers of an operator that is no table, or of a table that keeps no history: there is nothing to keep."""

    def held(self, newest: BatchMeta, partitions: Iterable[int], clock_ms: int) -> tuple[Seen, dict[int, Hold]]:
        """Return no reader, and nothing to keep."""
        return {}, {}

    def with_holds(
        self, newest: BatchMeta, plans: Sequence[PartitionPlan], clock_ms: int
    ) -> tuple[Seen, Sequence[PartitionPlan]]:
        """Return no reader, and the plans as they are."""
        return {}, plans

    def log_dropped_versions(
        self, plans: Sequence[PartitionPlan], results: Iterable[PartitionResult], batch: int
    ) -> None:
        """Do nothing."""


def readers_of(application: Application, name: str, log: Lake) -> Readers | NoReaders:
    """Return the readers of the operator's table, whose log this is."""
    config = application.operators[name]
    table = config.as_table()
    if table is None or table.history_retention is None:
        return NoReaders()
    return Readers(table=name, log=log, rewind_window_ms=config.rewind_window)


@dataclass(kw_only=True)
class Renewal:
    """A reader's lease on its table, written before the first pin and renewed while the reader runs."""

    reader: str
    log: Lake
    read: TableRead
    _written: Lease | None = None

    def first(self, newest: BatchMeta, clock_ms: int) -> None:
        """Write the first lease. Raise Unavailable if the lake refuses: the table might drop versions still needed."""
        self._written = None
        self._write(newest, clock_ms)

    def renew(self, newest: BatchMeta, clock_ms: int) -> None:
        """Renew the lease if it is due. Ignore errors of the lake: an outdated lease only makes the table keep more."""
        with suppress(EngineError):
            self._write(newest, clock_ms)

    def _write(self, newest: BatchMeta, clock_ms: int) -> None:
        lease = Lease(newest.epoch, clock_ms, self._needs(newest))
        if is_renewal_due(self._written, lease):
            leases.write(self.log, self.reader, lease)
            self._written = lease

    def _needs(self, newest: BatchMeta) -> dict[int, int]:
        """Return per partition the earliest event time that held records, or those not yet late, may look up."""
        times = {partition: self.read.time_of(known) for partition, known in newest.partitions.items()}
        due = {partition: time - self.read.grace for partition, time in times.items()}
        return {p: min(newest.partitions[p].needs.get(self.read.table, time), time) for p, time in due.items()}


class Released(NamedTuple):
    """What a batch of the reader released in a partition, and what still waits there.

    `passed`: records up to this event time were released. `clock`: the clock of the batch. `arrived`: that of the
    newest batch in which records may have reached the step that reads the table; -1: unknown.
    """

    passed: int
    clock: int
    arrived: int
    waiting: int
    waiting_bytes: int


@dataclass(kw_only=True)
class Gates:
    """The gates of a reader with a grace: up to which event time each partition may release its held records.

    `read`: how the reader reads the table. `ends`: the end offsets of each of the table's topics, read after those of
    the stream and before the table is pinned.
    """

    read: TableRead
    ends: Sequence[Mapping[int, int]] = ({},)
    _gates: defaultdict[int, Gate] = field(default_factory=lambda: defaultdict(Gate))
    _released: dict[int, Released] = field(default_factory=dict)

    def note_ends(self, newest: BatchMeta, ends: Sequence[Mapping[int, int]]) -> None:
        """Note the end offsets of the table's topics, read after the stream time in `newest` was reached."""
        self.ends = ends
        for partition, known in newest.partitions.items():
            if known.begun:
                self._gates[partition].add_due(self._due(known), self._ends_of(partition))

    def open_until(self, plan: PartitionPlan, read: Offsets) -> int:
        """Return the event time up to which the partition may release records in this batch.

        `read`: the offsets up to which the table has read its topics. An idle advance moves stream time after the ends
        were read, so that these ends do not cover the records which it makes due.
        """
        passed = self.passed(plan.partition, read)
        # rule: idle-due-waits/gate
        return ALWAYS if plan.action != "idle" and has_read(read, self._ends_of(plan.partition)) else passed

    def passed(self, partition: int, read: Offsets) -> int:
        """Return the event time up to which a table that has read up to there is complete for the stream."""
        return self._gates[partition].released_up_to(read)

    def note_used(self, result: PartitionResult, open_until: int, clock_ms: int) -> None:
        """Note what a batch released, and what its records have made due."""
        due = self._due(result)
        # rule: idle-due-waits/ends
        if result.action == "batch":
            self._gates[result.partition].add_due(due, self._ends_of(result.partition))
        waiting = (self.read.measure_of(result.measures, f"waiting_{what}_now") for what in ("records", "bytes"))
        arrived = self._arrived(result, clock_ms)
        self._released[result.partition] = Released(min(open_until, due), clock_ms, arrived, *waiting)

    def should_retry(self, newest: BatchMeta, partition: int, read: Offsets, now_ms: int) -> bool:
        """Return whether to try waiting records again: the table has read on, or the longest wait is over.

        True as well while no batch since the start has shown what waits in the partition.
        """
        used = self._released.get(partition)
        if used is None:
            return True
        if used.waiting and self.passed(partition, read) > used.passed:
            return True
        arrived = max(newest.partitions[partition].active_clock, used.arrived, 0)
        waited_until = arrived + (ALWAYS if self.read.wait is None else self.read.wait)
        return bool(used.waiting) and used.clock < waited_until <= now_ms

    def _ends_of(self, partition: int) -> Offsets:
        return tuple(ends.get(partition, ALWAYS) for ends in self.ends)

    def _due(self, known: PartitionMeta | PartitionResult) -> int:
        return self.read.time_of(known) - self.read.grace

    def _arrived(self, result: PartitionResult, clock_ms: int) -> int:
        """Return the clock of the newest batch in which a step before the reading one may have passed records on.

        They may arrive without new input: by an idle advance, or under other rules. Those of a batch before the start
        count as arrived in the first one.
        """
        if self.read.step is None or not self.read.has_own_time:
            return -1
        before = self._released.get(result.partition)
        came = result.ledger.get(self.read.step, Counts()).records_in
        return clock_ms if before is None or came else before.arrived

    def waiting(self) -> list[int]:
        """Return the partitions with due records that wait only for the table."""
        return sorted(partition for partition, used in self._released.items() if used.waiting)

    def full(self) -> set[int]:
        """Return the partitions in which so much waits that their stream must not be read any further."""
        # rule: waiting-bounded
        return {partition for partition, used in self._released.items() if used.waiting_bytes >= MOST_WAITING_BYTES}

    def nothing_waits(self, newest: BatchMeta) -> bool:
        """Return True if no record waits, and each partition with held records has had a batch since the start."""
        known = all(p in self._released for p, partition in newest.partitions.items() if partition.totals.held)
        return known and not self.waiting()
