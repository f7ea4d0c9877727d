"""How a table and its readers wait for each other: pure decisions.

A table keeps what its readers have yet to look up (leases, from which its floor follows); a reader lets a record go
when the table has read all that was written while the record could still wait (the gate). `docs/protocol.md` has the
rules, and the law that follows from them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.event_time import ALWAYS, NEVER

RENEW_EVERY_MS = 10_000
"""A lease that says nothing new is renewed this often."""
RENEW_AT_MOST_EVERY_MS = 1_000
"""One that does, at most this often."""

LONGEST_QUEUE = 1_023
"""Entries of a gate; an odd number, so that thinning them out keeps the newest."""


class Lease(NamedTuple):
    """What a reader of a table needs: per partition the earliest event time that it may still look up, ms.

    `epoch`: the reader's; `clock`: the wall clock at which its driver wrote it.
    """

    epoch: int
    clock: int
    needs: Mapping[int, int]

    def to_json(self) -> str:
        """Return one line of JSON; inverse of `from_json`."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Lease:
        """Return the lease that `to_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        said = json.loads(text)
        needs = {int(partition): int(needed) for partition, needed in said["needs"].items()}
        return cls(int(said["epoch"]), int(said["clock"]), needs)


def is_renewal_due(before: Lease | None, now: Lease) -> bool:
    """Decide whether to write the lease: at most once a second when it says something new, every ten seconds else."""
    if before is None or before.epoch != now.epoch:
        return True
    age_ms = abs(now.clock - before.clock)
    return age_ms >= (RENEW_AT_MOST_EVERY_MS if before.needs != now.needs else RENEW_EVERY_MS)


def alive(leases: Mapping[str, Lease], clock: int, rewind_window_ms: int) -> dict[str, Lease]:
    """Return the leases that still count: none is older than the table's rewind window."""
    return {reader: lease for reader, lease in leases.items() if lease.clock >= clock - rewind_window_ms}


def seen(before: Mapping[str, tuple[int, int]], leases: Mapping[str, Lease]) -> dict[str, tuple[int, int]]:
    """Return the newest epoch and clock of each reader, for the metadata: a lease may have been set back."""
    return {reader: max(before.get(reader, (0, 0)), (lease.epoch, lease.clock)) for reader, lease in leases.items()}


def needed(leases: Mapping[str, Lease], epochs: Mapping[str, tuple[int, int]], partition: int) -> int:
    """Return the earliest event time that a reader may still look up in the partition; ALWAYS: there is no reader.

    A lease of an older epoch than was seen is a superseded driver's, and a partition that it does not name is not
    known: nothing may go until the reader has renewed it.
    """
    return min(
        (
            NEVER if lease.epoch < epochs[reader][0] else lease.needs.get(partition, NEVER)
            for reader, lease in leases.items()
        ),
        default=ALWAYS,
    )


@dataclass
class Gate:
    """Until when the held records of one partition may leave, as far as their table is concerned.

    A queue of (event time up to which records were due, end of the table's topic read after that was so). Once the
    table has read such an end, it has every record that was written while those could still wait.
    """

    passed: int = NEVER
    _due: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, due: int, end: int) -> None:
        """Note that records up to `due` are due, and that the table's topic ended at `end` after they were."""
        if due > (self._due[-1][0] if self._due else self.passed):
            self._due.append((due, end))
        if len(self._due) > LONGEST_QUEUE:  # an entry left out lets its records go with the next one
            self._due = deque(list(self._due)[1::2])

    def read(self, offset: int) -> int:
        """Return the event time up to which records may leave, now that the table has read up to `offset`."""
        while self._due and self._due[0][1] <= offset:
            self.passed = self._due.popleft()[0]
        return self.passed
