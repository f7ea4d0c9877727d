"""Background compactions: rewritten part by part, and stopped once they would not be committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.metadata import of_each
from tests.patience import PATIENCE_S, wait_for
from tests.state.logs import HOUR_MS, OPERATOR, commit_rows, new_log, rows
from tidegate.runtime.batch_loop.background_compaction import Compacting
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

MAX_BATCHES = 8
"""After so many batches a compaction is due here."""


@dataclass
class HeldUp:
    """Jobs whose first one takes as long as the test wants."""

    goes_on: Event = field(default_factory=Event)
    done: list[Any] = field(default_factory=list)
    under_way: Event = field(default_factory=Event)

    def each_sequentially(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self.under_way.set()
            assert self.goes_on.wait(PATIENCE_S)
            self.done.append(item)
            yield work(item)


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    """A log of two partitions in which a compaction is due."""
    made = new_log(tmp_path / OPERATOR)
    for batch in range(1, MAX_BATCHES + 1):
        commit_rows(made, batch, {("state", partition): rows("a") for partition in (0, 1)}, next_offset={0: 0, 1: 0})
    return made


def begun(log: OperatorLog) -> tuple[Compacting, HeldUp]:
    """A compaction whose first part is under way."""
    jobs = HeldUp()
    compacting = Compacting(
        jobs=jobs,  # type: ignore[arg-type]
        slot=("key",),
        keep_output_ms=None,
        rewind_window_ms=HOUR_MS,
        max_batches=MAX_BATCHES,
    )
    newest = log.newest()
    assert newest is not None
    compacting.begin_if_due(log, newest, lambda newest: None)
    assert jobs.under_way.wait(PATIENCE_S)
    return compacting, jobs


def data_files(log: OperatorLog) -> set[Path]:
    return set(log.place.folder.rglob("*.parquet")) - set((log.place.folder / "_delta_log").rglob("*.parquet"))


def test_a_compaction_that_is_not_stopped_rewrites_every_part(log: OperatorLog) -> None:
    compacting, jobs = begun(log)
    jobs.goes_on.set()
    newest = log.newest()
    assert newest is not None
    wait_for(
        lambda: compacting.rewriting is not None and compacting.rewriting.answer.done(), "the end of the compaction"
    )
    worked_out = compacting.take_finished(log, newest)
    assert worked_out is not None
    meta, commit = worked_out
    commit()
    assert {part.partition for part in jobs.done} >= {0, 1}
    assert of_each(meta, "snapshot_batch") == {0: MAX_BATCHES, 1: MAX_BATCHES}


def test_a_stopped_compaction_rewrites_no_further_part_and_leaves_no_file(log: OperatorLog) -> None:
    before, newest = data_files(log), log.newest()
    compacting, jobs = begun(log)
    assert newest is not None
    compacting.stop()
    jobs.goes_on.set()
    wait_for(
        lambda: compacting.rewriting is not None and compacting.rewriting.answer.done(), "the end of the compaction"
    )
    assert len(jobs.done) == 1
    assert compacting.take_finished(log, newest) is None
    assert data_files(log) == before
    assert compacting.rewriting is None
