"""The share of records that each grace would have served, from the lateness that batches have counted.

A grace serves a record that is late by no more than the grace: the record is joined, or counted in its window, as if it
had been in time. Lateness is counted in bins (`kernels.lateness_bins`), so each share is a lower bound.
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
"""Round durations that people configure, ascending, in ms."""

SHARES = (0.99, 0.999, 1.0)
"""Shares of records for which the smallest grace is reported."""


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """The lateness of an operator's records: {bound in ms: records} as `bins`, the largest in ms, and records without
    bin.

    Records of batches from before bins existed have no bin.
    """

    bins: Mapping[int, int]
    largest: int
    without_bin: int

    @property
    def records(self) -> int:
        """Number of records that have a bin."""
        return sum(self.bins.values())


class GraceEffect(NamedTuple):
    """One grace, how many records it would have served at least, their share, and their average wait.

    Grace and wait (`delay`) are in ms of stream time.
    """

    grace: int
    served: int
    share: float
    delay: int


def lateness_of(measures: Mapping[str, int]) -> Lateness:
    """Return the lateness recorded in an operator's measures."""
    bins = {int(name.removeprefix(PREFIX)): count for name, count in measures.items() if name.startswith(PREFIX)}
    return Lateness(
        bins=dict(sorted(bins.items())),
        largest=measures.get("lateness_max", 0),
        without_bin=measures.get("lateness_count", 0) - sum(bins.values()),
    )


def grace_effects(lateness: Lateness, also: int | None = None) -> list[GraceEffect]:
    """Return the effect of round graces, ascending, up to the first that would have served all records.

    A grace that would have served no more records than a smaller one is left out; `also` is always included.
    """
    if lateness.records == 0:
        return []
    enough = next((grace for grace in ROUND_GRACES_MS if grace >= lateness.largest), lateness.largest)
    tried = sorted({*(grace for grace in ROUND_GRACES_MS if grace < enough), enough, *([] if also is None else [also])})
    found: list[GraceEffect] = []
    for each in (grace_effect(lateness, grace) for grace in tried):
        if not found or each.served > found[-1].served or each.grace == also:
            found.append(each)
    return found


def grace_effect(lateness: Lateness, grace: int) -> GraceEffect:
    """Return the effect of one grace."""
    served = {bound: count for bound, count in lateness.bins.items() if min(bound, lateness.largest) <= grace}
    waited = sum((grace - min(bound, grace)) * count for bound, count in served.items())
    count = sum(served.values())
    return GraceEffect(grace, count, count / lateness.records, waited // lateness.records)


def smallest(found: list[GraceEffect], share: float) -> GraceEffect | None:
    """Return the smallest of the graces that would have served that share; None if there is none."""
    return next((each for each in found if each.share >= share), None)


def rounded_duration(duration_ms: int) -> str:
    """Return the duration rounded for people, such as `12.5 min`."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if duration_ms >= length:
            return f"{duration_ms / length:.1f}".removesuffix(".0") + f" {unit}"
    return f"{duration_ms} ms"
