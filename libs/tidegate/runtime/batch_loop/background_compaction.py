"""The compactions of an operator: at once on request, or in the background when due.

Batches only add files, so what a background compaction has read stays valid while batches continue. It is committed
between two batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event
from typing import Any
from uuid import uuid4

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import EngineError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.operator import Slot
from tidegate.runtime.batch_loop.next_metadata import after_compaction
from tidegate.runtime.environment import Background
from tidegate.runtime.task.jobs import Jobs
from tidegate.runtime.threads import in_background
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.protocol_decisions import MAX_BATCHES, compaction_due
from tidegate.state.upkeep.cleanup import clean_up
from tidegate.state.upkeep.compaction import (
    Kept,
    Prepared,
    Rewrite,
    Rewritten,
    commit,
    compact,
    discard,
    prepare,
)


@dataclass(frozen=True, kw_only=True)
class Rewriting:
    """A background compaction under way: what it was planned from, and the future of its result."""

    log: LogVersion
    planned: BatchMeta
    began: float
    answer: Future[Prepared]
    stopped: Event

    def meta(self, newest: BatchMeta, clock_ms: int) -> BatchMeta:
        """Return the metadata of the compaction's commit, which follows `newest`."""
        through, attempt = self.planned.batch - 1, self.planned.attempt
        partitions = self.answer.result().snapshots
        return after_compaction(newest, partitions, attempt=attempt, clock=clock_ms, through=through)

    def drop(self) -> None:
        """Stop the compaction, wait for its end, and delete the files that it wrote."""
        self.stopped.set()
        if self.answer.exception() is None:  # one that failed has deleted its files itself
            discard(self.log, self.answer.result())


@dataclass(kw_only=True)
class Compacting:
    """The compactions of one driver.

    `keep_output_ms`: how long output stays in the log (None: forever). `max_batches`: after how many batches at most
    one is due. `count` and `seconds`: the number of compactions committed so far, and their total duration.
    """

    jobs: Jobs
    slot: Slot
    keep_output_ms: int | None
    rewind_window_ms: int
    in_background: Background = in_background
    clock: Clock = SYSTEM_CLOCK
    max_batches: int = MAX_BATCHES
    rewriting: Rewriting | None = None
    count: int = 0
    seconds: float = 0.0

    @property
    def is_under_way(self) -> bool:
        """Return whether a background compaction runs, or waits for its commit."""
        return self.rewriting is not None

    def compact_now(self, log: OperatorLog, newest: BatchMeta, published: Mapping[int, int] | None) -> BatchMeta:
        """Compact the whole log now and return the commit's metadata.

        Each partition's state is rewritten as a snapshot, and small files are merged. A background compaction under way
        is dropped first.
        """
        self.drop()
        began = self.clock.monotonic()
        meta = after_compaction(newest, newest.partitions, attempt=uuid4().hex, clock=self.clock.now_ms())
        compact(
            log,
            meta,
            Kept(slot=self.slot, output_ms=self.keep_output_ms, published=published),
            rewind_window_ms=self.rewind_window_ms,
            run=self.jobs.each,
            before_commit=lambda: reach("before_compaction_commit"),
        )
        self._count(began)
        return meta

    def begin_if_due(
        self, log: OperatorLog, newest: BatchMeta, published: Callable[[BatchMeta], Mapping[int, int] | None]
    ) -> None:
        """Start a background compaction if one is due and none is under way; no batch waits for it.

        `published` is asked only then: every round comes here, also those that find nothing to do.
        """
        if self.rewriting is not None or not due(log, newest, self.max_batches):
            return
        planned = after_compaction(newest, (), attempt=uuid4().hex, clock=self.clock.now_ms())
        held = {partition: known.totals.held for partition, known in newest.partitions.items()}
        pinned, spared = log.pinned_copy(), published(newest)
        stopped = Event()
        answer = self.in_background(lambda: self._prepared(pinned, planned, spared, held, stopped), "compaction")
        began = self.clock.monotonic()
        self.rewriting = Rewriting(log=pinned, planned=planned, began=began, answer=answer, stopped=stopped)

    def _prepared(
        self,
        log: LogVersion,
        planned: BatchMeta,
        published: Mapping[int, int] | None,
        held: Mapping[int, int],
        stopped: Event,
    ) -> Prepared:
        clean_up(log, clock_ms=planned.clock, rewind_window_ms=self.rewind_window_ms)
        return prepare(
            log,
            planned,
            Kept(slot=self.slot, output_ms=self.keep_output_ms, published=published),
            held=held,
            run=lambda work, parts: self._one_by_one(work, parts, stopped),
        )

    def _one_by_one(self, work: Any, parts: Sequence[Rewrite], stopped: Event) -> Iterator[Rewritten]:
        """Rewrite the parts one by one and yield the results. Raise EngineError before the next part once stopped."""
        for part in parts:
            if stopped.is_set():
                raise EngineError("the compaction was stopped, as its driver has ended")
            yield from self.jobs.each_sequentially(work, [part])

    def take_finished(self, log: OperatorLog, newest: BatchMeta) -> tuple[BatchMeta, Callable[[], None]] | None:
        """Return a finished compaction's metadata and the function that commits it; None if none has finished.

        Raise the error of a compaction that failed, after deleting its files. None as well for one that was stopped.
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
        meta, done = rewriting.meta(newest, self.clock.now_ms()), rewriting.answer.result()
        reach("before_compaction_commit")
        return meta, lambda: self._commit(log, meta, done, rewriting.began)

    def _commit(self, log: OperatorLog, meta: BatchMeta, done: Prepared, began: float) -> None:
        commit(log, meta, done)
        self._count(began)

    def _count(self, began: float) -> None:
        self.count += 1
        self.seconds += self.clock.monotonic() - began

    def stop(self) -> None:
        """Stop the background compaction without waiting for its end: it will not be committed, and cores get free."""
        if self.rewriting is not None:
            self.rewriting.stopped.set()

    def drop(self) -> None:
        """Stop the background compaction, if there is one, wait for its end, and delete its files."""
        rewriting, self.rewriting = self.rewriting, None
        if rewriting is not None:
            rewriting.drop()


def due(log: OperatorLog, newest: BatchMeta, max_batches: int = MAX_BATCHES) -> bool:
    """Return whether the log has grown enough since the newest compaction to be worth another one."""
    held = sum(known.totals.held for known in newest.partitions.values())
    size = log.size
    batches = newest.batch - newest.compacted
    return compaction_due(batches, size.state_rows, held, size.files, max_batches) is not None
