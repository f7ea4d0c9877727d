"""Names of the places where workers are, by which partitions find their homes. Pure functions.

Spark names an executor by a new number each time. So a place is named by its machine, and by the first free number
there: what takes the place of a lost executor gets its name, and with it the partitions whose states are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def place_of(machine: str, executor: int, taken: Mapping[tuple[str, int], str]) -> str:
    """Return the name of the place of that executor. `taken`: the names of the places where workers are already."""
    if (known := taken.get((machine, executor))) is not None:
        return known
    return f"{machine}/{first_free({name for (host, _), name in taken.items() if host == machine}, f'{machine}/')}"


def first_free(taken: Collection[str], prefix: str = "") -> str:
    """Return the lowest number that, after the prefix, is not taken."""
    return str(next(number for number in range(len(taken) + 1) if f"{prefix}{number}" not in taken))
