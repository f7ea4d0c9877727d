"""Names of the places where workers are, by which partitions find their homes. Pure functions.

Spark names an executor by a new number each time. So a place is named by its machine and the state folder there, or, if
executors have no folders of their own, by the first free number: what takes the place of a lost executor gets its name,
and with it the partitions whose states are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.runtime.workers.messages import Site

Disk = tuple[str, str]


def place_of(site: Site, taken: Mapping[Disk, str]) -> str:
    """Return the name of the place at that site. `taken`: the names of the places where workers are already."""
    machine = site.machine
    if (known := taken.get(disk_of(site))) is not None:
        return known
    if site.disk.startswith("/"):
        return f"{machine}:{site.disk}"
    return f"{machine}/{first_free({name for (host, _), name in taken.items() if host == machine}, f'{machine}/')}"


def disk_of(site: Site) -> Disk:
    """Return what all workers have in common that share local states."""
    return site.machine, site.disk


def first_free(taken: Collection[str], prefix: str = "") -> str:
    """Return the lowest number that, after the prefix, is not taken."""
    return str(next(number for number in range(len(taken) + 1) if f"{prefix}{number}" not in taken))
