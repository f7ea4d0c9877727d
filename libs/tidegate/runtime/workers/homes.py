"""Homes: which worker runs the work of a partition. A pure function.

A local state is on the disk of one machine, and its mapped pages are in one process. So a partition stays where it is,
and moves only when that place is lost, or when a place comes that has less than its share.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from fractions import Fraction


def homes(
    salt: str, partitions: Collection[int], before: Mapping[int, str], weights: Mapping[str, int]
) -> dict[int, str]:
    """Return the home of each partition: a place of `weights`, which has how much work each place can do.

    Places get about equal numbers of partitions by weight; among those that may take a partition, rendezvous hashing
    decides. A partition stays where it was `before`, unless that place is gone, or keeps another place from its share.
    Without `before` the result depends on nothing but the arguments, so that another driver comes to the same one.
    `salt`: the operator, so that operators with few partitions do not all have them at the same places.
    """
    # rule: homes-stay/kept
    found = {partition: before[partition] for partition in sorted(partitions) if before.get(partition) in weights}
    loads = Counter(found.values())

    def next_load(place: str) -> Fraction:
        return Fraction(loads[place] + 1, weights[place])

    for partition in sorted(set(partitions) - found.keys()):
        least = min(map(next_load, weights))
        found[partition] = max(
            (place for place in weights if next_load(place) == least), key=lambda place: _score(salt, partition, place)
        )
        loads[found[partition]] += 1
    while True:
        taker = min(weights, key=lambda place: (next_load(place), place))
        giver = max(weights, key=lambda place: (Fraction(loads[place], weights[place]), place))
        # rule: homes-stay/level
        if Fraction(loads[giver], weights[giver]) <= next_load(taker):
            return found
        moved = max((p for p, place in found.items() if place == giver), key=lambda p: _score(salt, p, taker))
        found[moved] = taker
        loads.subtract([giver])
        loads[taker] += 1


def _score(salt: str, partition: int, place: str) -> bytes:
    return hashlib.blake2b(f"{salt}\0{partition}\0{place}".encode(), digest_size=8).digest()
