"""Finds out who drives an operator, by one look at the lease: enough to inform, not to decide about a takeover."""

from __future__ import annotations

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import TidegateError
from tidegate.contracts.naming import log_path
from tidegate.runtime.configuration.application import Application
from tidegate.state import driver_leases
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lease_decisions import DriverLease, patience_s
from tidegate.state.local.instance import ended_instance

CLOCKS_DIFFER_MS = 10_000
"""By how much the clocks of the lake and of this machine may differ."""


def current_driver(application: Application, name: str, clock: Clock = SYSTEM_CLOCK) -> DriverLease | None:
    """Return the lease of the operator's driver; None if none runs, or it has not renewed its lease for too long."""
    try:
        look = driver_leases.look(open_lake(Place.of(log_path(application.lake, name))))
    except TidegateError:
        return None
    if look is None or look.lease is None:
        return None
    if look.lease.instance == ended_instance(application.state / application.application / name):
        return None
    allowed_ms = int(patience_s(look.lease, application.takeover_after_ms) * 1_000) + CLOCKS_DIFFER_MS
    return look.lease if clock.now_ms() - look.written_ms <= allowed_ms else None
