"""Finds out who drives an operator, by one look at the lease: enough to inform, not to decide about a takeover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import TidegateError
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding, Findings, roughly
from tidegate.state import driver_leases
from tidegate.state.lake.opening import open_lake
from tidegate.state.lease_decisions import DriverLease, patience_s
from tidegate.state.local.instance import ended_instance

CLOCKS_DIFFER_MS = 10_000
"""By how much the clocks of the lake and of this machine may differ."""


@dataclass(frozen=True, kw_only=True)
class LeaseFound:
    """The newest lease of an operator, and for how long it has not been renewed, by this machine's clock.

    `ended_here`: its driver ran on this machine and has ended. `allowed_ms`: for how long a living driver may not have
    renewed its lease.
    """

    name: str
    lease: DriverLease
    silent_ms: int
    allowed_ms: int
    ended_here: bool

    @property
    def is_alive(self) -> bool:
        """Return whether the lease is that of a driver that runs, as far as one look can tell."""
        return not self.ended_here and self.silent_ms <= self.allowed_ms


def lease_found(application: Application, name: str, clock: Clock = SYSTEM_CLOCK) -> LeaseFound | None:
    """Return the newest lease of the operator's drivers; None if there is none, or the lake does not answer."""
    try:
        look = driver_leases.look(open_lake(application.lake / name))
    except TidegateError:
        return None
    if look is None or look.lease is None:
        return None
    ended = ended_instance(application.state / application.application / name)
    return LeaseFound(
        name=name,
        lease=look.lease,
        silent_ms=clock.now_ms() - look.written_ms,
        allowed_ms=int(patience_s(look.lease, application.takeover_after_ms) * 1_000) + CLOCKS_DIFFER_MS,
        ended_here=look.lease.instance == ended,
    )


def current_driver(application: Application, name: str, clock: Clock = SYSTEM_CLOCK) -> DriverLease | None:
    """Return the lease of the operator's driver; None if none runs, or it has not renewed its lease for too long."""
    found = lease_found(application, name, clock)
    return found.lease if found is not None and found.is_alive else None


def collect(application: Application) -> list[LeaseFound]:
    """Return the newest lease of each operator that has one."""
    found = (lease_found(application, name) for name in application.operators)
    return [each for each in found if each is not None]


def driver_renews_its_lease(found: LeaseFound) -> Findings:
    """Check that a driver that has not ended in good order still renews its lease."""
    if not found.is_alive:
        shown = f"{found.lease.place}, silent for {roughly(found.silent_ms)}"
        remedy = (
            "start the service again, or a standby on another machine; a driver that still runs there is then fenced"
        )
        problem = "the driver has ended without deleting its lease, or cannot reach the lake"
        yield Finding(about=found.name, problem=problem, value=shown, remedy=remedy)


CHECKS: Sequence[Callable[[LeaseFound], Findings]] = (driver_renews_its_lease,)
