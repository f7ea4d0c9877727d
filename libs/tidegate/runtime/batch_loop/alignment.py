"""How drivers let a table and its readers wait for each other.

The decisions are those of `state.alignment`. `Readers` is the table's side: what its batches keep for whom. `Renewal`
and `Gates` are a reader's: what it tells the table, and which of its held records may leave.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidegate.contracts.event_time import ALWAYS, NEVER, NO_STREAM_TIME
from tidegate.contracts.naming import log_path
from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.messages import Hold, PartitionPlan, PartitionResult
from tidegate.runtime.telemetry.log_lines import about
from tidegate.state import leases
from tidegate.state.alignment import Gate, Lease, alive, is_renewal_due, needed, seen
from tidegate.state.disk import disk_errors
from tidegate.state.upkeep.cleanup import MIN_WINDOW_MS

lines = logging.getLogger("tidegate")

MOST_WAITING_BYTES = 2**26
"""With so much waiting for the table, no more of the stream is read in a partition."""

Seen = dict[str, tuple[int, int]]


@dataclass(kw_only=True)
class Readers:
    """The readers of one table, as its driver sees them."""

    table: str
    log: Path
    rewind_window_ms: int
    _dead: frozenset[str] = frozenset()

    def held(self, newest: BatchMeta, partitions: Iterable[int], clock_ms: int) -> tuple[Seen, dict[int, Hold]]:
        """Read the leases; return the readers that count, and what each of the partitions has to keep."""
        found = leases.read(self.log, clock_ms)
        counting = alive(found, clock_ms, max(self.rewind_window_ms, MIN_WINDOW_MS))
        self._tell_dead(found.keys() - counting.keys())
        readers = seen(newest.readers, counting)
        return readers, {
            partition: Hold(newest.floor.get(partition, NEVER), needed(counting, readers, partition))
            for partition in partitions
        }

    def tell_given_up(self, plans: Sequence[PartitionPlan], results: Iterable[PartitionResult], batch: int) -> None:
        """Log the partitions in which more would have had to be kept for readers than the configuration allows."""
        holds = {plan.partition: plan.hold for plan in plans}
        for result in results:
            hold = holds.get(result.partition)
            if hold is None or result.floor is None or result.floor <= max(hold.floor, hold.needs):
                continue
            line = (
                "%s, partition %d: more than hold_for_readers was kept: versions before %d ms have gone, which readers "
            )
            line += "need from %d ms on; what they miss they call expired: look at them, or raise hold_for_readers"
            fields = about(self.table, partition=result.partition, batch=batch)
            lines.warning(line, self.table, result.partition, result.floor, hold.needs, extra=fields)

    def _tell_dead(self, dead: Iterable[str]) -> None:
        for reader in sorted(set(dead) - self._dead):
            line = "%s no longer waits for its reader %s: its lease is older than rewind_window; start it, or remove %s"
            lines.warning(line, self.table, reader, leases.path_of(self.log, reader), extra=about(self.table))
        self._dead = frozenset(dead)


def readers_of(application: Application, name: str) -> Readers | None:
    """The readers of the operator's table; None: it keeps no versions that could be held for any."""
    config = application.operators[name]
    table = config.as_table()
    if table is None or table.history_retention is None:
        return None
    return Readers(table=name, log=log_path(application.lake, name), rewind_window_ms=config.rewind_window)


@dataclass(kw_only=True)
class Renewal:
    """A reader's lease on its table: written before the first pin, and renewed while the reader runs."""

    reader: str
    log: Path
    grace: int
    _written: Lease | None = None

    def first(self, newest: BatchMeta, clock_ms: int) -> None:
        """Write the lease. Unavailable where that cannot be done: the table may then forget what is needed."""
        self._written = None
        with disk_errors(self.log):
            self._write(newest, clock_ms)

    def renew(self, newest: BatchMeta, clock_ms: int) -> None:
        """Write the lease if it is time for it. One that stays older than it could be only holds more."""
        with suppress(OSError):
            self._write(newest, clock_ms)

    def _write(self, newest: BatchMeta, clock_ms: int) -> None:
        lease = Lease(newest.epoch, clock_ms, self._needs(newest))
        if is_renewal_due(self._written, lease):
            leases.write(self.log, self.reader, lease)
            self._written = lease

    def _needs(self, newest: BatchMeta) -> dict[int, int]:
        """Return the earliest time that may still be looked up: of what is held, or of what is not late yet."""
        partitions = [partition for reached in newest.offsets.values() for partition in reached]
        due = {partition: newest.stream_time.get(partition, NO_STREAM_TIME) - self.grace for partition in partitions}
        return {partition: min(newest.needs.get(partition, time), time) for partition, time in due.items()}


class Used(NamedTuple):
    """What a batch of the reader has let go in a partition: records up to `passed`, by its clock; what still waits."""

    passed: int
    clock: int
    waiting: int
    waiting_bytes: int


@dataclass(kw_only=True)
class Gates:
    """When the records that a reader holds for a grace may leave, per partition. `wait`: at most so long, by the clock.

    `ends`: of the table's topic, read after those of the stream, and before the table's pin.
    """

    grace: int
    wait: int | None
    ends: Mapping[int, int] = field(default_factory=dict)
    _gates: defaultdict[int, Gate] = field(default_factory=lambda: defaultdict(Gate))
    _used: dict[int, Used] = field(default_factory=dict)

    def note_ends(self, newest: BatchMeta, ends: Mapping[int, int]) -> None:
        """Note where the table's topic ends, after the stream had come as far as its newest batch says."""
        self.ends = ends
        for partition, stream_time in newest.stream_time.items():
            self._gates[partition].note(stream_time - self.grace, ends.get(partition, ALWAYS))

    def open_until(self, plan: PartitionPlan, read: int) -> int:
        """Return until when records of the partition may leave in this batch, for a table that has read so far.

        An advance of stream time by the clock comes after the ends were read: they say nothing of what it makes due.
        """
        passed = self.passed(plan.partition, read)
        return ALWAYS if plan.action != "idle" and read >= self.ends.get(plan.partition, ALWAYS) else passed

    def passed(self, partition: int, read: int) -> int:
        """Return the event time up to which the table is complete for the stream's records."""
        return self._gates[partition].read(read)

    def note_used(self, result: PartitionResult, open_until: int, clock_ms: int) -> None:
        """Note what a batch has let go, and what its records have made due since the ends were read."""
        due = result.stream_time - self.grace
        if result.action == "batch":
            self._gates[result.partition].note(due, self.ends.get(result.partition, ALWAYS))
        waiting = (result.measures.get(f"waiting_{what}_now", 0) for what in ("records", "bytes"))
        self._used[result.partition] = Used(min(open_until, due), clock_ms, *waiting)

    def may_go_on(self, newest: BatchMeta, partition: int, read: int, now_ms: int) -> bool:
        """Decide whether something that waits may leave: the table has read on, or it was waited for long enough."""
        used = self._used.get(partition)
        if used is None:
            return True
        if used.waiting and self.passed(partition, read) > used.passed:
            return True
        waited_until = newest.active.get(partition, 0) + (ALWAYS if self.wait is None else self.wait)
        return bool(used.waiting) and used.clock < waited_until <= now_ms

    def waiting(self) -> list[int]:
        """Return the partitions in which records wait for the table alone."""
        return sorted(partition for partition, used in self._used.items() if used.waiting)

    def full(self) -> set[int]:
        """Return the partitions in which so much waits that no more of the stream is read."""
        return {partition for partition, used in self._used.items() if used.waiting_bytes >= MOST_WAITING_BYTES}

    def settled(self, newest: BatchMeta) -> bool:
        """Decide whether nothing waits, as far as batches since the start have shown."""
        known = all(partition in self._used for partition, counts in newest.totals.items() if counts.held)
        return known and not self.waiting()
