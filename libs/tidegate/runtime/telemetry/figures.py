"""What the batches of each operator add up to since the service started.

A batch only leaves its metadata here; it is counted when somebody asks, by the thread that asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.telemetry.metrics import Metrics

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms' buckets."""

MOST_NOTED = 50
"""Batches that wait to be counted; where nobody asks, the batch after them counts them all: a few ms for each."""

_OF_BATCH = ("job", "commit", "publish")


@dataclass(kw_only=True)
class Times:
    """How long something took, each time, counted by `BOUNDS_S`; the last bucket has no bound."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(kw_only=True)
class OperatorFigures:
    """One operator's metrics and times."""

    metrics: Metrics = field(default_factory=Metrics)
    batch: Times = field(default_factory=Times)
    commit: Times = field(default_factory=Times)
    publication: Times = field(default_factory=Times)
    recovery: Times = field(default_factory=Times)

    def add(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """The batch is counted; `seconds`: what its parts took."""
        self.metrics.add(meta)
        self.batch.add(sum(seconds.get(part, 0.0) for part in _OF_BATCH))
        self.commit.add(seconds.get("commit", 0.0))
        if meta.opened:
            self.publication.add(seconds.get("publish", 0.0))
        if meta.recovered:
            self.recovery.add(seconds.get("recover", 0.0))


class Figures:
    """The figures of all operators of a process."""

    def __init__(self) -> None:
        self._noted: deque[tuple[BatchMeta, dict[str, float]]] = deque()
        self._counted: dict[str, OperatorFigures] = {}
        self._lock = Lock()

    def note(self, meta: BatchMeta, seconds: dict[str, float]) -> None:
        """The batch will be counted."""
        self._noted.append((meta, dict(seconds)))
        if len(self._noted) > MOST_NOTED:
            with self.counted():
                pass

    @contextmanager
    def counted(self) -> Iterator[Mapping[str, OperatorFigures]]:
        """The figures by operator, with every batch that was noted before; they stand still while this lasts."""
        with self._lock:
            for _ in range(len(self._noted)):
                meta, seconds = self._noted.popleft()
                self._counted.setdefault(meta.operator, OperatorFigures()).add(meta, seconds)
            yield self._counted
