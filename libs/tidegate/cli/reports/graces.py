"""What each grace would have served, from the lateness that batches have counted.

A record that is late by no more than the grace is served: it is joined, or counted in its window, as if it had come in
time. Lateness is known by bins (`kernels.lateness_bins`), so a share is the least that a grace would have served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.contracts.event_time import parse_duration_ms
from tidegate.kernels.lateness_bins import PREFIX

_LADDER = (
    "0 1ms 2ms 5ms 10ms 20ms 50ms 100ms 200ms 500ms 1s 2s 5s 10s 20s 30s 1m 2m 5m 10m 15m 20m 30m 45m "
    "1h 90m 2h 3h 4h 6h 8h 12h 16h 1d 36h 2d 3d 5d 7d 14d 30d 60d 90d 180d 365d"
)
ROUND_GRACES_MS = tuple(parse_duration_ms(text) for text in _LADDER.split())
"""What people write."""

SHARES = (0.99, 0.999, 1.0)
"""The shares of records that people ask for."""


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """How late records were: `bins` {bound in ms: records}, the largest in ms, and how many have no bin.

    Records of batches that were done before there were bins have none.
    """

    bins: Mapping[int, int]
    largest: int
    without_bin: int

    @property
    def records(self) -> int:
        """How many have a bin."""
        return sum(self.bins.values())


class Offer(NamedTuple):
    """A grace, how many records it would have served at least, what share that is, and how long records would have
    waited on average, in stream time; ms."""

    grace: int
    served: int
    share: float
    delay: int


def lateness_of(measures: Mapping[str, int]) -> Lateness:
    """The lateness that an operator's measures tell."""
    bins = {int(name.removeprefix(PREFIX)): count for name, count in measures.items() if name.startswith(PREFIX)}
    return Lateness(
        bins=dict(sorted(bins.items())),
        largest=measures.get("lateness_max", 0),
        without_bin=measures.get("lateness_count", 0) - sum(bins.values()),
    )


def offers(lateness: Lateness, also: int | None = None) -> list[Offer]:
    """What graces would have given, ascending, up to the first that would have served all; `also` is among them.

    One that would have served no more than a smaller one is left out.
    """
    if lateness.records == 0:
        return []
    enough = next((grace for grace in ROUND_GRACES_MS if grace >= lateness.largest), lateness.largest)
    tried = sorted({*(grace for grace in ROUND_GRACES_MS if grace < enough), enough, *([] if also is None else [also])})
    found: list[Offer] = []
    for each in (offer(lateness, grace) for grace in tried):
        if not found or each.served > found[-1].served or each.grace == also:
            found.append(each)
    return found


def offer(lateness: Lateness, grace: int) -> Offer:
    """What the grace would have given."""
    served = {bound: count for bound, count in lateness.bins.items() if min(bound, lateness.largest) <= grace}
    waited = sum((grace - min(bound, grace)) * count for bound, count in served.items())
    count = sum(served.values())
    return Offer(grace, count, count / lateness.records, waited // lateness.records)


def smallest(found: list[Offer], share: float) -> Offer | None:
    """The smallest grace among the offers that would have served that share."""
    return next((each for each in found if each.share >= share), None)


def about(duration_ms: int) -> str:
    """The duration as people say it: 12.5 min."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if duration_ms >= length:
            return f"{duration_ms / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{duration_ms} ms"
