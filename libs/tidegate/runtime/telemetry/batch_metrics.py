"""KIP-328's metrics and the record counts of an operator, computed from the metadata of its batches.

Every figure is a function of the commits, so a running service and `tidegate status`, which only reads the log, report
the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, TypeVar

from tidegate.contracts.batch_metadata import BatchMeta, Counts, PartitionChange

Number = TypeVar("Number", bound=float)

RECENT_MS = 60_000
_COUNTED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")
_HELD = ("held", "held_bytes")
_SINCE, _NOW = "since", "_now"
_NO_TOTAL = ("_now", "_max", "_min")
_OF_AVERAGES = ("_sum", "_count")
_BIN = "lateness_upto_"


class Metrics:
    """The metrics of one operator: since the first batch that was added, and over the 60 s before the newest one."""

    def __init__(self) -> None:
        self._first_clock: int | None = None
        self._last_clock = 0
        self._held: dict[int, Counts] = {}
        self._peak = {"held_max": 0, "held_bytes_max": 0}
        self._measures: dict[int, dict[str, int]] = {}
        self._added: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
        self._recent: deque[tuple[int, dict[str, int]]] = deque()

    @classmethod
    def after(cls, meta: BatchMeta) -> Metrics:
        """Return the metrics from the log's first batch up to that of `meta`, without those over the last 60 s."""
        metrics, figures = cls(), meta.figures
        metrics._first_clock, metrics._last_clock = figures.get(_SINCE), meta.clock
        metrics._held = {partition: known.totals for partition, known in meta.partitions.items()}
        metrics._measures = {partition: known.measured for partition, known in meta.partitions.items()}
        metrics._peak = {name: figures.get(name, 0) for name in metrics._peak}
        metrics._added.update({name: count for name, count in figures.items() if name != _SINCE and _adds_up(name)})
        return metrics

    def add(self, meta: BatchMeta) -> None:
        """Count the batch; commits that changed no partition, such as claims and compactions, are ignored."""
        if not meta.changed:
            return
        self._first_clock = meta.clock if self._first_clock is None else self._first_clock
        self._last_clock = meta.clock
        for partition, change in meta.changed.items():
            self._held[partition] = change.counts
            self._measures[partition] = merge_batches(self._measures.get(partition, {}), change.measures)
        self._peak["held_max"] = max(self._peak["held_max"], self.held)
        self._peak["held_bytes_max"] = max(self._peak["held_bytes_max"], self.held_bytes)
        added = {**_counted(meta), **self._sizes()}
        self._added.update(added)
        self._recent.append((meta.clock, added))
        while self._recent[0][0] < meta.clock - RECENT_MS:
            self._recent.popleft()

    def _sizes(self) -> dict[str, int]:
        """Return each current size as one sample, from which averages over batches are computed."""
        now = {"held": self.held, "held_bytes": self.held_bytes}
        for measures in self._measures.values():
            for name, size in measures.items():
                if name.endswith("_now"):
                    what = name.removesuffix("_now")
                    now[what] = now.get(what, 0) + size
        return {f"{what}_sum": size for what, size in now.items()} | {f"{what}_count": 1 for what in now}

    @property
    def held(self) -> int:
        """Return the number of slots held now, in all partitions."""
        return sum(counts.held for counts in self._held.values())

    @property
    def held_bytes(self) -> int:
        """Return the bytes held now, in all partitions, as `bytes_of` counts them."""
        return sum(counts.held_bytes for counts in self._held.values())

    @property
    def measures(self) -> Mapping[int, Mapping[str, int]]:
        """Return each partition's measures, merged over its batches."""
        return self._measures

    def report(self) -> dict[str, Any]:
        """Return totals, sizes, lateness and overtime in ms, and rates per second and averages.

        Rates and averages are given since the first batch, and over the last 60 s (`..._60s`).
        """
        seconds = max(self._last_clock - (self._first_clock or 0), 1) / 1_000
        measures: dict[str, int] = reduce(merge_partitions, self._measures.values(), {})
        recent: Counter[str] = Counter(dict.fromkeys(self._added, 0))
        for _, added in self._recent:
            recent.update(added)
        return {
            **{name: self._added[name] for name in _COUNTED},
            "held": self.held,
            "held_bytes": self.held_bytes,
            **self._peak,
            **measures,
            **_rates(self._added, seconds, ""),
            **_rates(recent, min(seconds, RECENT_MS / 1_000), "_60s"),
            **_averages(self._added, ""),
            **_averages(recent, "_60s"),
        }


def figures_after(before: BatchMeta, changed: Mapping[int, PartitionChange], clock: int) -> dict[str, int]:
    """Return the operator's figures after a batch with these changes; reads only the batch's partitions.

    Figures are what `Metrics` adds up: records, measures, and each size once per batch. `<size>_now` is a size after
    the batch.
    """
    figures = Counter(before.figures or {_SINCE: clock})
    for partition, change in changed.items():
        known, counts, measures = before.partitions[partition], change.counts, change.measures
        figures.update({name: getattr(counts, name) for name in _COUNTED})
        figures.update({f"{name}_now": getattr(counts, name) - getattr(known.totals, name) for name in _HELD})
        figures.update({name: count for name, count in measures.items() if _adds_up(name)})
        grown = {name: size - known.measured.get(name, 0) for name, size in measures.items() if name.endswith(_NOW)}
        figures.update(grown)
    for name in [name.removesuffix(_NOW) for name in figures if name.endswith(_NOW)]:
        figures.update({f"{name}_sum": figures[f"{name}{_NOW}"], f"{name}_count": 1})
    peaks = {f"{name}_max": max(figures[f"{name}_max"], figures[f"{name}{_NOW}"]) for name in _HELD}
    return {**figures, **peaks}


def merge_batches(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Merge the measures of one partition over two batches, of which `other` is the later.

    By suffix of the name: `_now` takes the later value, `_max` and `_min` the extreme; all others add up.
    """
    return _merged(one, other, lambda _before, now: now)


def merge_partitions(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Merge the measures of two partitions: `_max` and `_min` take the extreme; all others, `_now` too, add up."""
    return _merged(one, other, lambda here, there: here + there)


def _sum(one: int, other: int) -> int:
    return one + other


def _merged(one: dict[str, int], other: dict[str, int], now: Callable[[int, int], int]) -> dict[str, int]:
    ways: dict[str, Callable[[int, int], int]] = {"now": now, "max": max, "min": min}
    both = {name: ways.get(name.rpartition("_")[2], _sum)(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def _counted(meta: BatchMeta) -> Counter[str]:
    """Return what the batch adds to totals: its records, and the measures that add up, except lateness bins."""
    changes = meta.changed.values()
    counted = Counter({name: sum(getattr(change.counts, name) for change in changes) for name in _COUNTED})
    for change in changes:
        counted.update({name: count for name, count in change.measures.items() if _adds_up(name)})
    return counted


def by_step(figures: Mapping[str, Number]) -> dict[str, dict[str, Number]]:
    """Return the figures of each step of a pipeline, under their names within it; under "" those of the operator."""
    found: dict[str, dict[str, Number]] = {}
    for name, figure in figures.items():
        step, _, own = name.rpartition(".")
        found.setdefault(step, {})[own] = figure
    return found


def _adds_up(name: str) -> bool:
    return not name.endswith(_NO_TOTAL) and not name.rpartition(".")[2].startswith(_BIN)


def _rates(added: Mapping[str, int], seconds: float, when: str) -> dict[str, float]:
    return {f"{name}_rate{when}": count / seconds for name, count in added.items() if not name.endswith(_OF_AVERAGES)}


def _averages(added: Mapping[str, int], when: str) -> dict[str, float]:
    """Return `x_avg` for each `x` that has both `x_sum` and `x_count`."""
    return {
        f"{what}_avg{when}": added[f"{what}_sum"] / count
        for name, count in added.items()
        if name.endswith("_count") and count and f"{(what := name.removesuffix('_count'))}_sum" in added
    }


def metrics_of(metas: Iterable[BatchMeta]) -> Metrics:
    """Return the metrics over the given batches, which must be oldest first."""
    metrics = Metrics()
    for meta in metas:
        metrics.add(meta)
    return metrics
