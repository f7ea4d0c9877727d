"""Decide whether a driver may claim an operator, from what it sees of the lease of the operator's driver. Pure.

A driver renews its lease while it runs. Whoever wants to claim the operator watches that lease on its own monotonic
clock, so that no two machines have to agree on the time. The lease only prevents needless takeovers: the epoch in the
log alone fences, and a driver whose lease ran out by mistake is fenced by its next commit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import NamedTuple

RENEWALS = 3
"""How often a driver renews its lease within the time after which another one may take over."""
LOOKS = 24
"""How often a waiting driver looks at the lease within that time, if the lake is a folder."""
LOOKS_REMOTE = 6
"""The same in an object store, where each look costs money."""


@dataclass(frozen=True, kw_only=True)
class DriverLease:
    """The lease of a running driver, which only that driver writes.

    `epoch`: that of its claim, to which requests are addressed. `instance`: the id in its state folder. `since`,
    `clock`: when it started, and the clock of its newest commit, both in ms of the wall clock. `takeover_after_ms`:
    after which time without a renewal another driver may take over.
    """

    epoch: int
    instance: str
    host: str
    process: int
    since: int
    takeover_after_ms: int
    clock: int = 0
    renewals: int = 0

    @property
    def place(self) -> str:
        """Return where the driver runs, as text for people."""
        return f"process {self.process} on {self.host}"

    def renewed(self, clock: int) -> DriverLease:
        """Return the lease with the clock of the newest commit; it differs from every earlier one of the driver."""
        return replace(self, clock=clock, renewals=self.renewals + 1)

    def to_json(self) -> bytes:
        """Return the lease as JSON; the inverse of `from_json`."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> DriverLease:
        """Return the lease that `to_json` wrote. Raise ValueError or TypeError for anything else."""
        found = cls(**json.loads(data))
        if not isinstance(found.epoch, int) or not isinstance(found.takeover_after_ms, int):
            raise TypeError("a lease without numbers")
        return found


class Sight(NamedTuple):
    """What one look shows of an operator's driver: the newest epoch, and the ETag of the lease of that epoch.

    The epoch is the newest one of log and leases. The ETag is None if the driver of that epoch has no lease: it may
    have claimed a moment ago.
    """

    epoch: int
    etag: str | None


@dataclass(frozen=True)
class Watch:
    """What successive looks show: `silent_s` is for how long nothing has changed, `renewed` whether anything ever has.

    `at` is the time of the newest look, in seconds of the watcher's monotonic clock.
    """

    sight: Sight
    at: float
    silent_s: float = 0.0
    renewed: bool = False

    def after(self, sight: Sight, now: float, longest_step_s: float) -> Watch:
        """Return the watch after another look, which showed `sight` at `now`.

        The time between two looks counts as at most `longest_step_s`: while the lake did not answer the watcher, it may
        not have answered the driver either.
        """
        # rule: only-changes-renew
        if sight != self.sight:
            return Watch(sight, now, renewed=True)
        # rule: outage-is-no-silence
        step_s = min(now - self.at, longest_step_s)
        return replace(self, at=now, silent_s=self.silent_s + step_s)


class Life(Enum):
    """What the looks so far say about the driver of an operator.

    NONE: no driver has a lease. UNKNOWN: there is a lease, which has not been watched for long enough. ALIVE: it is
    renewed. GONE: its driver has ended without deleting it.
    """

    NONE = "none"
    UNKNOWN = "unknown"
    ALIVE = "alive"
    GONE = "gone"


def life_of(watch: Watch | None, lease: DriverLease | None, ended_instance: str | None, own_ms: int) -> Life:
    """Return what is known of the operator's driver.

    `watch` is None if no driver has a lease; `lease` is None too if the newest one is missing or cannot be read.
    `ended_instance`: an instance of which it is known that no driver runs. `own_ms`: the watcher's `takeover_after`.
    """
    if watch is None:
        return Life.NONE
    # rule: ended-instance-is-gone
    if lease is not None and lease.instance == ended_instance:
        return Life.GONE
    # rule: silent-driver-is-gone
    if watch.silent_s >= patience_s(lease, own_ms):
        return Life.GONE
    return Life.ALIVE if watch.renewed else Life.UNKNOWN


class Succession(Enum):
    """What a starting driver does about a driver that is running.

    REFUSE: it ends. STAND_BY: it waits, and takes over when that driver is gone. TAKE_OVER: it claims at once.
    """

    REFUSE = "refuse"
    STAND_BY = "stand by"
    TAKE_OVER = "take over"


class Turn(Enum):
    """What a driver that wants to claim does next. LOOK: look again after a pause."""

    CLAIM = "claim"
    LOOK = "look"
    REFUSE = "refuse"


def whose_turn(life: Life, way: Succession) -> Turn:
    """Return what a starting driver does next, given what it knows of the operator's driver."""
    # rule: living-driver-kept
    if way is Succession.TAKE_OVER or life in (Life.NONE, Life.GONE):
        return Turn.CLAIM
    return Turn.REFUSE if life is Life.ALIVE and way is Succession.REFUSE else Turn.LOOK


def patience_s(lease: DriverLease | None, own_ms: int) -> float:
    """Return for how many seconds a lease has to stay the same before its driver counts as gone.

    It is the longer one of the driver's setting and the watcher's own, as the driver renews by its own.
    """
    return max(own_ms, 0 if lease is None else lease.takeover_after_ms) / 1_000


def renewal_s(takeover_after_ms: int) -> float:
    """Return the interval of a driver's renewals, in seconds."""
    return takeover_after_ms / RENEWALS / 1_000


def look_s(patience_s: float, *, is_local: bool) -> float:
    """Return the pause between two looks of a waiting driver, in seconds."""
    return patience_s / (LOOKS if is_local else LOOKS_REMOTE)
