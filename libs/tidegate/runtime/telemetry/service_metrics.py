"""The totals of each operator's batches since the service started.

A driver only queues a batch's metadata here. The thread that reads the totals, for instance for a scrape, adds it to
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.runtime.telemetry.batch_metrics import Metrics

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms' buckets."""

MAX_PENDING = 50
"""Maximum number of queued batches. If nothing reads the totals, the next batch adds all of them: a few ms for each."""

_OF_BATCH = ("job", "commit", "publish")


@dataclass(kw_only=True)
class DurationHistogram:
    """A histogram of durations with the bucket bounds `BOUNDS_S`; the last bucket has no bound."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Record one duration."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(kw_only=True)
class OperatorMetrics:
    """One operator's metrics and durations."""

    metrics: Metrics = field(default_factory=Metrics)
    batch: DurationHistogram = field(default_factory=DurationHistogram)
    commit: DurationHistogram = field(default_factory=DurationHistogram)
    publication: DurationHistogram = field(default_factory=DurationHistogram)
    recovery: DurationHistogram = field(default_factory=DurationHistogram)

    def add(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """Count the batch. `seconds`: the durations of its phases, by name."""
        self.metrics.add(meta)
        self.batch.add(sum(seconds.get(part, 0.0) for part in _OF_BATCH))
        self.commit.add(seconds.get("commit", 0.0))
        if any(change.opened for change in meta.changed.values()):
            self.publication.add(seconds.get("publish", 0.0))
        if any(change.recovered for change in meta.changed.values()):
            self.recovery.add(seconds.get("recover", 0.0))


class ServiceMetrics:
    """The figures of all operators of a process."""

    def __init__(self) -> None:
        self._noted: deque[tuple[BatchMeta, dict[str, float]]] = deque()
        self._counted: dict[str, OperatorMetrics] = {}
        self._lock = Lock()

    def note(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """Note the batch, to be counted later."""
        self._noted.append((meta, dict(seconds)))
        if len(self._noted) > MAX_PENDING:
            with self.counted():
                pass

    @contextmanager
    def counted(self) -> Iterator[Mapping[str, OperatorMetrics]]:
        """Count every batch noted so far and yield the figures by operator; they do not change during the block."""
        with self._lock:
            for _ in range(len(self._noted)):
                meta, seconds = self._noted.popleft()
                self._counted.setdefault(meta.operator, OperatorMetrics()).add(meta, seconds)
            yield self._counted
