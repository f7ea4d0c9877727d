"""KIP-328's metrics and the record counts of an operator, from the metadata of its batches. May import: contracts.

Every figure is a function of the commits, so that a running service and `tidegate status`, which reads the log alone,
say the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
        self._measures: dict[str, int] = {}
        self._recent: deque[tuple[int, dict[str, int]]] = deque()

    def add(self, meta: BatchMeta) -> None:
        """The batch is counted."""
        self._first_clock = meta.clock if self._first_clock is None else self._first_clock
        self._last_clock = meta.clock
        counted = {name: sum(getattr(c, name) for c in meta.counts.values()) for name in _COUNTED}
        for name, count in counted.items():
            self._totals[name] += count
        self._held.update(meta.counts)
        for measures in meta.measures.values():
            self._measures = merge_measures(self._measures, measures)
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
        recent = {name: sum(counted[name] for _, counted in self._recent) for name in _COUNTED}
        return {
            **self._totals,
            "held": self.held,
            "held_bytes": self.held_bytes,
            "held_avg": self._held_sum / max(self._batches, 1),
            **self._peak,
            **{f"{name}_rate": self._totals[name] / seconds for name in _COUNTED},
            **{f"{name}_rate_60s": recent[name] / recent_seconds for name in _COUNTED},
            **derived(self._measures),
        }


def merge_measures(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Measures of two batches as of one: names in `_max` keep the larger, in `_min` the smaller, others add up."""
    merged = dict(one)
    for name, value in other.items():
        if name not in merged:
            merged[name] = value
        elif name.endswith("_max"):
            merged[name] = max(merged[name], value)
        elif name.endswith("_min"):
            merged[name] = min(merged[name], value)
        else:
            merged[name] += value
    return merged


def derived(measures: dict[str, int]) -> dict[str, float]:
    """The measures, each `x_sum` with an `x_count` beside it joined by its average `x_avg`."""
    averages = {
        f"{name.removesuffix('_sum')}_avg": total / count
        for name, total in measures.items()
        if name.endswith("_sum") and (count := measures.get(f"{name.removesuffix('_sum')}_count"))
    }
    return {**measures, **averages}


def metrics_of(metas: Iterable[BatchMeta]) -> Metrics:
    """The metrics over the given batches, oldest first."""
    metrics = Metrics()
    for meta in metas:
        metrics.add(meta)
    return metrics
