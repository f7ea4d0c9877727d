"""KIP-328's metrics and the record counts of an operator, from the metadata of its batches. May import: contracts.

Every figure is a function of the commits, so that a running service and `tidegate status`, which reads the log alone,
say the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any

from tidegate.contracts.schema import BatchMeta, Counts

RECENT_MS = 60_000
_COUNTED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")


class Metrics:
    """The metrics since the first batch that was added, and over the last 60 s before the newest one."""

    def __init__(self) -> None:
        self._first_clock: int | None = None
        self._last_clock = 0
        self._totals = dict.fromkeys(_COUNTED, 0)
        self._held: dict[int, Counts] = {}
        self._peak = {"held_max": 0, "held_bytes_max": 0}
        self._held_sum = self._batches = 0
        self._measures: dict[int, dict[str, int]] = {}
        self._recent: deque[tuple[int, dict[str, int]]] = deque()

    def add(self, meta: BatchMeta) -> None:
        """The batch is counted."""
        self._first_clock = meta.clock if self._first_clock is None else self._first_clock
        self._last_clock = meta.clock
        counted = {name: sum(getattr(c, name) for c in meta.counts.values()) for name in _COUNTED}
        for name, count in counted.items():
            self._totals[name] += count
        self._held.update(meta.counts)
        for partition, measures in meta.measures.items():
            self._measures[partition] = later(self._measures.get(partition, {}), measures)
        self._batches += 1
        self._held_sum += self.held
        self._peak["held_max"] = max(self._peak["held_max"], self.held)
        self._peak["held_bytes_max"] = max(self._peak["held_bytes_max"], self.held_bytes)
        self._recent.append((meta.clock, counted))
        while self._recent[0][0] < meta.clock - RECENT_MS:
            self._recent.popleft()

    @property
    def held(self) -> int:
        """Slots held now, all partitions."""
        return sum(counts.held for counts in self._held.values())

    @property
    def held_bytes(self) -> int:
        """Bytes held now, all partitions, as `bytes_of` counts them."""
        return sum(counts.held_bytes for counts in self._held.values())

    def report(self) -> dict[str, Any]:
        """Totals, sizes, rates per second (since start and over the last 60 s), lateness and overtime in ms."""
        seconds = max(self._last_clock - (self._first_clock or 0), 1) / 1_000
        recent_seconds = min(seconds, RECENT_MS / 1_000)
        measures = reduce(together, self._measures.values(), {})
        recent = {name: sum(counted[name] for _, counted in self._recent) for name in _COUNTED}
        return {
            **self._totals,
            "held": self.held,
            "held_bytes": self.held_bytes,
            "held_avg": self._held_sum / max(self._batches, 1),
            **self._peak,
            **{f"{name}_rate": self._totals[name] / seconds for name in _COUNTED},
            **{f"{name}_rate_60s": recent[name] / recent_seconds for name in _COUNTED},
            **measures,
            **averages(measures),
        }


def later(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The measures of one partition over two batches, `other` the later: by their names, `_now` is replaced, `_max` and
    `_min` keep their extremes, others add up.
    """
    return _merged(one, other, lambda _before, now: now)


def together(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The measures of two partitions as of one: `_now` adds up too; extremes are those of any partition."""
    return _merged(one, other, lambda here, there: here + there)


def _merged(one: dict[str, int], other: dict[str, int], now: Callable[[int, int], int]) -> dict[str, int]:
    ways: dict[str, Callable[[int, int], int]] = {"now": now, "max": max, "min": min}
    both = {name: ways.get(name.rpartition("_")[2], add)(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def averages(measures: dict[str, int]) -> dict[str, float]:
    """`x_avg` for each `x_sum` that has an `x_count` beside it."""
    return {
        f"{what}_avg": measures[f"{what}_sum"] / count
        for name, count in measures.items()
        if name.endswith("_count") and count and f"{(what := name.removesuffix('_count'))}_sum" in measures
    }


def metrics_of(metas: Iterable[BatchMeta]) -> Metrics:
    """The metrics over the given batches, oldest first."""
    metrics = Metrics()
    for meta in metas:
        metrics.add(meta)
    return metrics
