"""Drivers of one operator that stand by, claim, renew and are frozen or killed, on one clock, by the real decisions.

Only the lake is a model: a log that accepts a claim on top of the epoch that was read, and leases with ETags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.state.lease_decisions import (
    DriverLease,
    Sight,
    Succession,
    Turn,
    Watch,
    life_of,
    look_s,
    patience_s,
    renewal_s,
    whose_turn,
)

TAKEOVER_AFTER_MS = 6_000
STEP_S = 0.25
CLAIM_S = 1.0
"""From the decision to claim until the claim is in the log."""
COMMIT_S = 1.0

Span = tuple[float, float]
"""From, to; in seconds."""


@dataclass
class ModelLake:
    """The newest epoch of the log, the leases, and when the lake answers nobody."""

    epoch: int = 0
    leases: dict[int, tuple[int, DriverLease]] = field(default_factory=dict)
    outages: Sequence[Span] = ()
    claims: list[tuple[float, int]] = field(default_factory=list)
    puts: int = 0

    def put(self, lease: DriverLease) -> None:
        self.puts += 1
        self.leases[lease.epoch] = (self.puts, lease)

    def look(self, epoch: int) -> tuple[Sight, DriverLease | None] | None:
        if not self.leases:
            return None
        newest = max(self.leases)
        if newest < epoch:
            return Sight(epoch, None), None
        etag, lease = self.leases[newest]
        return Sight(newest, str(etag)), lease


@dataclass
class ModelDriver:
    """One driver. `frozen`: when it does nothing; `killed_at`: from when on it never does anything."""

    number: int
    lake: ModelLake
    frozen: Sequence[Span] = ()
    killed_at: float = float("inf")
    owns: int | None = None
    """The epoch under which it believes to drive."""
    _watch: Watch | None = None
    _known: int = 0
    _claims_at: float | None = None
    _follows: int = 0
    _due: dict[str, float] = field(default_factory=dict)

    def step(self, now: float) -> None:
        """Do what is due."""
        if now >= self.killed_at or _within(self.frozen, now) or _within(self.lake.outages, now):
            return
        if self.owns is not None:
            self._drive(now, self.owns)
        elif self._claims_at is None:
            self._stand_by(now)
        elif now >= self._claims_at:
            self._claim(now)

    def _stand_by(self, now: float) -> None:
        if not self._is_due("look", now, look_s(patience_s(None, TAKEOVER_AFTER_MS), is_local=True)):
            return
        self._known = self._known or self.lake.epoch
        seen = self.lake.look(self._known)
        if seen is None:
            self._watch = None
        elif self._watch is None:
            self._watch = Watch(seen[0], now)
        else:
            self._watch = self._watch.after(seen[0], now, renewal_s(TAKEOVER_AFTER_MS))
        life = life_of(self._watch, None if seen is None else seen[1], f"{self.number}", TAKEOVER_AFTER_MS)
        if whose_turn(life, Succession.STAND_BY) is not Turn.CLAIM:
            return
        if seen is not None and self.lake.epoch > seen[0].epoch:
            self._known = self.lake.epoch
        else:
            self._claims_at, self._follows = now + CLAIM_S, self.lake.epoch

    def _claim(self, now: float) -> None:
        self._claims_at, self._watch, self._known = None, None, 0
        if self.lake.epoch != self._follows:
            return
        self.lake.epoch += 1
        self.owns = self.lake.epoch
        self.lake.claims.append((now, self.number))
        self._due = {}
        self._renew(now, self.owns)
        self.lake.leases = {epoch: each for epoch, each in self.lake.leases.items() if epoch >= self.owns}

    def _drive(self, now: float, epoch: int) -> None:
        if self._is_due("commit", now, COMMIT_S) and self.lake.epoch > epoch:
            self.owns = None
            self.lake.leases.pop(epoch, None)
        else:
            self._renew(now, epoch)

    def _renew(self, now: float, epoch: int) -> None:
        if self._is_due("renewal", now, renewal_s(TAKEOVER_AFTER_MS)):
            self.lake.put(
                DriverLease(
                    epoch=epoch,
                    instance=f"{self.number}, {epoch}",
                    host="host",
                    process=1,
                    since=0,
                    takeover_after_ms=TAKEOVER_AFTER_MS,
                )
            )

    def _is_due(self, what: str, now: float, every_s: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + every_s
        return True


def play(lake: ModelLake, drivers: Sequence[ModelDriver], until_s: float, from_s: float = 0.0) -> None:
    """Let time pass."""
    for step in range(int(from_s / STEP_S), int(until_s / STEP_S)):
        for driver in drivers:
            driver.step(step * STEP_S)


def _within(spans: Sequence[Span], now: float) -> bool:
    return any(start <= now < end for start, end in spans)
