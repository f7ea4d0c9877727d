"""Decide what a table keeps for its readers and when a reader may release held records. Pure functions.

A table keeps the versions that its readers may still look up: readers state their needs in leases, and the table's
floor follows from these. A reader releases a held record once the table has read everything that was written to the
table's topic while the record could still wait (the gate). `docs/protocol.md` has the rules and the guarantee that
follows.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.contracts.event_time import ALWAYS, NEVER

RENEW_EVERY_MS = 10_000
"""Interval at which a lease with unchanged needs is renewed, ms."""
RENEW_AT_MOST_EVERY_MS = 1_000
"""Shortest interval between two writes of a lease whose needs change, ms."""

Offsets = tuple[int, ...]
"""An offset in one partition of each topic that a table reads, in the order of the topics."""

LONGEST_QUEUE = 1_023
"""Most entries in the queue of a gate.

It is odd: a queue with one entry more has an even number of them, and dropping every other one keeps the newest.
"""


class Lease(NamedTuple):
    """The needs of one reader of a table: per partition the earliest event time that it may still look up, ms.

    `epoch` is the reader's; `clock` is the wall clock of its driver when it wrote the lease, ms.
    """

    epoch: int
    clock: int
    needs: Mapping[int, int]

    def to_json(self) -> str:
        """Return the lease as one line of JSON; the inverse of `from_json`."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Lease:
        """Return the lease that `to_json` wrote.

        Raise ValueError, KeyError, TypeError or AttributeError for any other text.
        """
        said = json.loads(text)
        needs = {int(partition): int(needed) for partition, needed in said["needs"].items()}
        return cls(int(said["epoch"]), int(said["clock"]), needs)


def is_renewal_due(before: Lease | None, now: Lease) -> bool:
    """Return True if the lease has to be written now.

    A lease with changed needs is written at most once a second, one with unchanged needs every ten seconds, and the
    first one of an epoch at once.
    """
    if before is None or before.epoch != now.epoch:
        return True
    age_ms = abs(now.clock - before.clock)
    return age_ms >= (RENEW_AT_MOST_EVERY_MS if before.needs != now.needs else RENEW_EVERY_MS)


def live_leases(leases: Mapping[str, Lease], clock: int, rewind_window_ms: int) -> dict[str, Lease]:
    """Return the leases that still count: those not older than the table's rewind window, by their clock."""
    # rule: lease-expires
    return {reader: lease for reader, lease in leases.items() if lease.clock >= clock - rewind_window_ms}


def seen(before: Mapping[str, tuple[int, int]], leases: Mapping[str, Lease]) -> dict[str, tuple[int, int]]:
    """Return the newest epoch and clock of each reader, for the metadata of the table's batch.

    Take the larger of the lease and `before`, because a lease file may be older than the one that was seen before.
    """
    return {reader: max(before.get(reader, (0, 0)), (lease.epoch, lease.clock)) for reader, lease in leases.items()}


def needed(leases: Mapping[str, Lease], epochs: Mapping[str, tuple[int, int]], partition: int) -> int:
    """Return the earliest event time that any reader may still look up in the partition; ALWAYS if there is no reader.

    Return NEVER, so that no version expires until the lease is renewed, in two cases: the lease has an older epoch than
    `epochs` (a superseded driver wrote it), or it does not name the partition.
    """
    # rule: bad-lease-releases-nothing/superseded
    return min(
        (
            NEVER if lease.epoch < epochs[reader][0] else lease.needs.get(partition, NEVER)
            for reader, lease in leases.items()
        ),
        default=ALWAYS,
    )


@dataclass
class Gate:
    """The event time up to which the table allows held records of one partition to be released.

    The queue has pairs of an event time up to which records are due, and the end offsets of the table's topics, read
    after they had become due. Once the table has read each topic up to its end, it has every record that was written
    while those due records could still wait.
    """

    passed: int = NEVER
    _due: deque[tuple[int, Offsets]] = field(default_factory=deque)

    def add_due(self, due: int, ends: Offsets) -> None:
        """Add that records up to event time `due` are due, and that the table's topics had these ends after that."""
        if due > (self._due[-1][0] if self._due else self.passed):
            self._due.append((due, ends))
        if len(self._due) > LONGEST_QUEUE:  # records of a dropped entry are released with the next one
            self._due = deque(list(self._due)[1::2])

    def released_up_to(self, read: Offsets) -> int:
        """Return the event time up to which records may be released, given that the table has read up to there."""
        # rule: gate-of-due
        while self._due and has_read(read, self._due[0][1]):
            self.passed = self._due.popleft()[0]
        return self.passed


def has_read(read: Offsets, ends: Offsets) -> bool:
    """Return whether each topic was read up to its end."""
    # rule: gate-of-each-topic
    return all(offset >= end for offset, end in zip(read, ends, strict=False))
