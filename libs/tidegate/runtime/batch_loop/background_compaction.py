"""An operator's compactions: at once when asked, or worked out beside the batches when due.

Batches only add files, so what a compaction has read stays as it was; between two batches it is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event
from typing import Any
from uuid import uuid4

from tidegate.contracts.errors import EngineError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.schema import BatchMeta
from tidegate.runtime import clock
from tidegate.runtime.batch_loop.metadata import after_compaction
from tidegate.runtime.spark.jobs import Jobs
from tidegate.runtime.threads import beside
from tidegate.state.decisions import compaction_due
from tidegate.state.delta_log.data_files import delete_attempt
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep.cleanup import clean_up
from tidegate.state.upkeep.compaction import (
    Prepared,
    Rewrite,
    Rewritten,
    commit,
    compact,
    prepare,
)


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """A compaction that is being worked out beside the batches, planned at a batch, and what becomes of it."""

    log: OperatorLog
    planned: BatchMeta
    began: float
    answer: Future[Prepared]
    stopped: Event

    def meta(self, newest: BatchMeta) -> BatchMeta:
        """The metadata of the commit, which comes after `newest`."""
        through, attempt = self.planned.batch - 1, self.planned.attempt
        partitions = self.answer.result().snapshots
        return after_compaction(newest, partitions, attempt=attempt, clock=clock.now_ms(), through=through)

    def drop(self) -> None:
        """Stop it, wait for its end, and delete what it wrote."""
        self.stopped.set()
        self.answer.exception()
        delete_attempt(self.log.path, self.planned.batch, self.planned.attempt)


@dataclass(kw_only=True)
class Compacting:
    """What a driver knows of compactions. `keep_output_ms`: how long output stays in the log (None: forever).

    `count` and `seconds`: its compactions, and what they took together.
    """

    jobs: Jobs
    slot: Sequence[str]
    keep_output_ms: int | None
    rewind_window_ms: int
    rewriting: Rewriting | None = None
    count: int = 0
    seconds: float = 0.0

    def at_once(self, log: OperatorLog, newest: BatchMeta, published: Mapping[int, int] | None) -> BatchMeta:
        """The metadata of the commit: each partition's state is a snapshot, small files are merged."""
        self.drop()
        began = time.monotonic()
        partitions = [partition for reached in newest.offsets.values() for partition in sorted(reached)]
        meta = after_compaction(newest, partitions, attempt=uuid4().hex, clock=clock.now_ms())
        compact(
            log,
            meta,
            slot=self.slot,
            keep_output_ms=self.keep_output_ms,
            rewind_window_ms=self.rewind_window_ms,
            published=published,
            run=self.jobs.each,
            before_commit=lambda: reach("before_compaction_commit"),
        )
        self._count(began)
        return meta

    def begin_if_due(self, log: OperatorLog, newest: BatchMeta, published: Mapping[int, int] | None) -> None:
        """Start to work out a compaction if one is due: what it lists, reads and writes is no part of a batch."""
        if self.rewriting is not None or not due(log, newest):
            return
        planned = after_compaction(newest, (), attempt=uuid4().hex, clock=clock.now_ms())
        held = {partition: counts.held for partition, counts in newest.totals.items()}
        at_rest = log.at_rest()
        stopped = Event()
        answer = beside(lambda: self._prepared(at_rest, planned, published, held, stopped))
        began = time.monotonic()
        self.rewriting = Rewriting(log=at_rest, planned=planned, began=began, answer=answer, stopped=stopped)

    def _prepared(
        self,
        log: OperatorLog,
        planned: BatchMeta,
        published: Mapping[int, int] | None,
        held: Mapping[int, int],
        stopped: Event,
    ) -> Prepared:
        clean_up(log, clock_ms=planned.clock, rewind_window_ms=self.rewind_window_ms)
        return prepare(
            log,
            planned,
            slot=self.slot,
            keep_output_ms=self.keep_output_ms,
            published=published,
            held=held,
            run=lambda work, parts: self._one_by_one(work, parts, stopped),
        )

    def _one_by_one(self, work: Any, parts: Sequence[Rewrite], stopped: Event) -> Iterator[Rewritten]:
        """Yield what became of each part. EngineError once it is stopped, before the next part."""
        for part in parts:
            if stopped.is_set():
                raise EngineError("the compaction was stopped, as its driver has ended")
            yield from self.jobs.one_by_one(work, [part])

    def committer(self, log: OperatorLog, newest: BatchMeta) -> tuple[BatchMeta, Callable[[], None]] | None:
        """The metadata of a compaction that is worked out, and what commits it; None where there is none.

        Raises what has kept it from being worked out; nothing of it is left then.
        """
        rewriting = self.rewriting
        if rewriting is None or not rewriting.answer.done():
            return None
        if (failure := rewriting.answer.exception()) is not None:
            self.drop()
            if rewriting.stopped.is_set():
                return None
            raise failure
        self.rewriting = None
        meta, done = rewriting.meta(newest), rewriting.answer.result()
        reach("before_compaction_commit")
        return meta, lambda: self._commit(log, meta, done, rewriting.began)

    def _commit(self, log: OperatorLog, meta: BatchMeta, done: Prepared, began: float) -> None:
        commit(log, meta, done)
        self._count(began)

    def _count(self, began: float) -> None:
        self.count += 1
        self.seconds += time.monotonic() - began

    def stop(self) -> None:
        """Stop what is being worked out, without waiting: nobody will commit it, and others need the cores."""
        if self.rewriting is not None:
            self.rewriting.stopped.set()

    def drop(self) -> None:
        """Nothing is being worked out; what was is gone when its work has ended."""
        rewriting, self.rewriting = self.rewriting, None
        if rewriting is not None:
            rewriting.drop()


def due(log: OperatorLog, newest: BatchMeta) -> bool:
    """True when a compaction is worth its work."""
    held = sum(counts.held for counts in newest.totals.values())
    tally = log.tally
    return compaction_due(newest.batch - newest.compacted, tally.state_rows, held, tally.files) is not None
