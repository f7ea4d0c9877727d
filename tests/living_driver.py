"""A driver of which only the lease is there: for tests of those who look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.runtime.threads import repeating
from tidegate.state import driver_leases
from tidegate.state.lake.port import Lake
from tidegate.state.lease_decisions import DriverLease

LEASE = DriverLease(epoch=1_000, instance="another", host="head", process=77, since=1, takeover_after_ms=1_000)


@contextmanager
def living_driver(lake: Lake, lease: DriverLease = LEASE) -> Iterator[DriverLease]:
    """Somebody renews that lease while the block runs, and deletes it in the end."""

    def renew() -> None:
        nonlocal lease
        lease = lease.renewed(2)
        driver_leases.put(lake, lease)

    renew()
    with repeating(renew, 0.02, "lease"):
        yield lease
    driver_leases.end(lake, lease.epoch)
