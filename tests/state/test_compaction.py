"""Compaction, retention and clean-up on a real Delta table."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.hypothesis_profile import WHOLE
from tests.lakes import entry_path
from tests.state.logs import HOUR_MS, OPERATOR, a_file, clock_of, commit_rows, files, meta, new_log, reopened, rows
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import EngineError, Fenced, StartOver, StateError, Unavailable, UserError
from tidegate.state.delta_log import operator_log
from tidegate.state.delta_log.checkpoints import write_checkpoint
from tidegate.state.delta_log.data_files import read_files
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.state.delta_log.log_entries import DELTA_LOG, clock_at, document_of, encoded, read_actions, version_at
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import log_after
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import STAGING
from tidegate.state.upkeep import cleanup, compaction, orphans
from tidegate.state.upkeep.cleanup import clean_up
from tidegate.state.upkeep.compaction import (
    Kept,
    Prepared,
    Rewrite,
    Rewritten,
    compact,
    plan,
    prepare,
)

pytestmark = pytest.mark.fast

CHECKPOINT_EVERY = 4


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", CHECKPOINT_EVERY)


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / OPERATOR)


def changes(*texts: str) -> pa.Table:
    """State rows: `a=1` is a put, `a` a delete."""
    parts = [text.partition("=") for text in texts]
    return pa.table(
        {
            "op": ["put" if equals else "delete" for _, equals, _ in parts],
            "key": [key.encode() for key, _, _ in parts],
            "value": pa.array([value.encode() if equals else None for _, equals, value in parts], pa.binary()),
        }
    )


def run(
    log: OperatorLog, batch: int, *, keep: int | None = None, published: dict[int, int] | None = None, clock: int = 0
) -> BatchMeta:
    """The log is compacted as that batch."""
    mine = meta(log, batch, action="compaction", clock=clock)
    compact(log, mine, Kept(slot=("key",), output_ms=keep, published=published), rewind_window_ms=HOUR_MS)
    return mine


def state(log: OperatorLog) -> list[tuple[int, int, int, bytes]]:
    table = log.read("state", columns=["partition", "batch", "seq", "key"])
    return [tuple(row.values()) for row in table.to_pylist()]


def test_a_snapshot_keeps_the_last_put_of_each_slot_with_its_batch_and_seq(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): changes("a=1", "b=1", "c=1"), ("state", 1): changes("a=1")})
    commit_rows(log, 2, {("state", 0): changes("b=2", "c", "d=2")})
    run(log, 3)
    assert state(log) == [(0, 1, 0, b"a"), (0, 2, 0, b"b"), (0, 2, 2, b"d"), (1, 1, 0, b"a")]
    assert len(log.data_files("state", 0)) == 1


def test_a_compaction_is_one_commit_with_its_own_batch_that_changes_no_data(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): changes("a=1"), ("emission", 0): rows("x")})
    before = log.version
    committed = run(log, 3)
    assert (log.version, log.newest(), reopened(log).newest()) == (before + 1, committed, committed)
    actions = read_actions(log.lake, log.version) or []
    added = {a["add"]["path"]: a["add"]["dataChange"] for a in actions if "add" in a}
    removed = [a["remove"] for a in actions if "remove" in a]
    assert [path for path, changed in added.items() if changed] == [
        p for p in added if f"/{3:020d}-" in p and p in metas(log)
    ]
    assert len(removed) == 2
    assert not any(remove["dataChange"] for remove in removed)


def metas(log: OperatorLog) -> set[str]:
    """The path of the metadata rows that a compaction has just written."""
    newest = log.newest()
    assert newest is not None
    return {file.path for file in log.data_files("meta", after_batch=newest.recorded - 1)}


def test_output_and_metadata_are_merged_and_every_row_stays(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {(kind, 0): rows(f"{kind}{batch}") for kind in ("emission", "late", "rejected")})
    run(log, 4)
    commit_rows(log, 5, {})
    before = [log.read(kind).to_pylist() for kind in ("emission", "late", "rejected", "meta")]
    run(log, 6)
    commit_rows(log, 7, {})
    run(log, 8)
    after = [log.read(kind).to_pylist() for kind in ("emission", "late", "rejected", "meta")]
    assert after[:3] == before[:3]
    assert after[3][:3] == before[3]
    assert [len(log.data_files(kind)) for kind in ("emission", "late", "rejected", "meta")] == [1, 1, 1, 2]


def test_a_compaction_writes_the_metadata_of_the_batches_before_it_into_rows(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {}, next_offset={0: batch, 1: 0})
    assert log.read("meta").num_rows == 0
    run(log, 3)
    rows_of = log.read("meta", columns=["batch", "seq", "value", "timestamp"]).to_pylist()
    entries = [document_of(read_actions(log.lake, version) or []) for version in (1, 2)]
    clocks = [clock_of(1), clock_of(2)]
    assert [(row["batch"], row["seq"], row["timestamp"]) for row in rows_of] == [(1, 0, clocks[0]), (2, 0, clocks[1])]
    assert [json.loads(row["value"]) for row in rows_of] == entries


def test_entries_without_a_metadata_row_are_kept(log: OperatorLog) -> None:
    long_log(log)
    commit_rows(log, 200, {}, recorded=5)
    clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    assert versions(log.place.folder)[0] == 6


def test_batches_whose_entries_are_kept_for_a_row_cannot_be_read(log: OperatorLog) -> None:
    """The entries from 6 on are kept; the first checkpoint is that of 8."""
    long_log(log)
    commit_rows(log, 200, {}, recorded=5)
    clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    for batch in (5, 6, 7):
        with pytest.raises(UserError, match="no longer reaches back"):
            log_after(log.lake, batch)
    assert [log_after(log.lake, batch).version for batch in (8, 9, None)] == [8, 9, log.version]


def test_a_checkpoint_of_a_different_program_does_not_delete_metadata_that_is_needed(log: OperatorLog) -> None:
    """Complete metadata: 1, 4, 8, ..., 40, 44, 48; somebody's checkpoint: 42; old: up to 43."""
    for batch in range(1, 50):
        commit_rows(log, batch, {}, recorded=batch)
    write_checkpoint(log.lake, 42, load(log.lake, 42).actions())
    backdate(log, range(44), days=1)
    clean_up(log, clock_ms=now_ms(log), rewind_window_ms=0)
    assert versions(log.place.folder)[0] == 40
    newest = LogVersion.at(log.lake, 43).newest()
    assert newest is not None and newest.batch == 43


def test_metadata_is_deleted_only_together_with_metadata_that_builds_upon_it(log: OperatorLog) -> None:
    """1 is complete; 2 and 3 say what they changed --- 4, 5, 7, 8 are compactions, hence complete --- 6"""
    for batch in (1, 2, 3):
        commit_rows(log, batch, {}, clock=clock_of(batch))
    for batch in (4, 5):
        run(log, batch, clock=clock_of(batch))
    commit_rows(log, 6, {}, clock=clock_of(6))
    run(log, 7, keep=4_500, clock=clock_of(7))  # 1 and 2 are old
    assert log.batches("meta", -1) == [1, 2, 3, 4, 5, 6]
    run(log, 8, keep=3_500, clock=clock_of(8))  # 4 is old, too
    assert log.batches("meta", -1) == [5, 6, 7]


def test_a_second_compaction_finds_nothing_more_to_rewrite_but_metadata(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): changes("a=1"), ("emission", 0): rows("x")})
    run(log, 3)
    kept = {file.path for kind in ("state", "emission") for file in log.data_files(kind)}
    run(log, 4)
    assert {file.path for kind in ("state", "emission") for file in log.data_files(kind)} == kept


def test_an_empty_state_leaves_no_file(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): changes("a=1")})
    commit_rows(log, 2, {("state", 0): changes("a")})
    run(log, 3)
    assert log.data_files("state") == []


def test_large_output_is_cut_into_several_files_in_order(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LARGE_FILE_BYTES", 200)
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): changes(*(f"{batch}{key}=1" for key in range(9)))})
    before = state(log)
    run(log, 3)
    assert len(log.data_files("state")) > 2
    assert state(log) == before


def test_an_output_row_is_merged_once_per_doubling(log: OperatorLog) -> None:
    rounds, merged = 32, 0
    for batch in range(1, 3 * rounds + 1, 3):
        for small in (batch, batch + 1):
            commit_rows(log, small, {("emission", 0): rows(*(uuid4().hex for _ in range(200)))})
        before = {file.path for file in log.data_files("emission")}
        run(log, batch + 2)
        merged += sum(file.rows for file in log.data_files("emission") if file.path not in before)
    total = log.read("emission").num_rows
    assert total == rounds * 400
    assert merged <= total * (math.log2(rounds) + 1)
    assert len(log.data_files("emission")) <= math.log2(rounds) + 1


def test_twice_as_many_files_take_twice_the_steps_to_plan(log: OperatorLog) -> None:
    few = steps_to_plan(log, batch=1, added=30)
    assert steps_to_plan(log, batch=2, added=30) == pytest.approx(2 * few, rel=0.1)


def steps_to_plan(log: OperatorLog, *, batch: int, added: int) -> int:
    """How many instructions of Python it takes to plan a compaction after a batch of so many mixed and other files."""
    committed = meta(log, batch)
    mixed = {("state", 0): changes("a=1"), ("state", 1): changes("b=1"), ("emission", 0): rows("e")}
    written = [mixed, *({part: table} for part, table in mixed.items())] * added
    log.commit(committed, [file for each in written for file in files(log, meta(log, batch), each)])
    steps = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        planned = plan(log, meta(log, batch + 1, action="compaction"), Kept(slot=("key",)), held={0: 1, 1: 1})
    finally:
        sys.settrace(before)
    assert sum(len(part.files) for part in planned) == 6 * added * batch
    return steps


def test_large_files_of_output_are_not_rewritten(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SMALL_FILE_BYTES", 1)
    for batch in (1, 2):
        commit_rows(log, batch, {("emission", 0): rows("x")})
    kept = log.data_files("emission")
    run(log, 3)
    assert log.data_files("emission") == kept


def test_output_older_than_keep_output_is_dropped_by_its_batch_s_clock(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {(kind, 0): rows("x") for kind in ("emission", "late", "rejected")})
    run(log, 4, keep=1_500, clock=clock_of(4))
    for kind in ("emission", "late", "rejected"):
        assert log.batches(kind, 0) == [3]


def test_old_rows_are_dropped_from_a_file_with_newer_rows(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {("emission", 0): rows("x")})
    run(log, 4, clock=clock_of(4))
    commit_rows(log, 5, {("emission", 0): rows("y")})
    run(log, 6, keep=3_500, clock=clock_of(6))
    assert log.batches("emission", 0) == [3, 5]


@pytest.mark.parametrize("wrong", [5_000, -HOUR_MS, clock_of(-HOUR_MS), clock_of(0), clock_of(HOUR_MS)])
@pytest.mark.parametrize("batch", [1, 2, 4, 5])
def test_a_clock_that_jumps_drops_nothing_that_is_not_old(log: OperatorLog, batch: int, wrong: int) -> None:
    """Batches 1 to 5 are a few seconds old, but one says otherwise: it was run while the clock was wrong."""
    for each in range(1, 6):
        commit_rows(log, each, {("late", 0): rows("x")}, **({"clock": wrong} if each == batch else {}))
    run(log, 6, keep=60_000, clock=clock_of(6))
    first_of_the_log = wrong == clock_of(-HOUR_MS) and batch == 1  # nothing tells that it was not run then
    assert log.batches("late", 0) == list(range(2 if first_of_the_log else 1, 6))


def test_old_batches_are_dropped_although_a_clock_was_wrong_in_between(log: OperatorLog) -> None:
    """1 and 2 old --- 3 says 1970 --- 4 says in a hundred years --- 5 old --- 6 young"""
    for batch, clock in enumerate([clock_of(1), clock_of(2), 5_000, clock_of(3e9), clock_of(5), clock_of(1_000)], 1):
        commit_rows(log, batch, {("late", 0): rows("x")}, clock=clock)
    run(log, 7, keep=60_000, clock=clock_of(1_001))
    assert log.batches("late", 0) == [6]


def test_output_above_the_mark_stays_however_old_it_is(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("emission", 0): rows("x"), ("emission", 1): rows("x"), ("late", 0): rows("x")})
    run(log, 3, keep=0, clock=clock_of(4), published={0: 1, 1: -1})
    assert log.batches("emission", 0) == log.batches("late", 0) == [2]
    assert log.batches("emission", 1) == [1, 2]


def test_output_is_kept_for_ever_if_that_is_asked_for(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("emission", 0): rows("x")})
    run(log, 3, keep=None, clock=10**15)
    assert log.batches("emission", 0) == [1, 2]


def test_an_older_driver_s_compaction_is_fenced_and_does_not_change_the_log(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): changes("a=1")})
    newer = reopened(log)
    commit_rows(newer, 3, {}, epoch=2)
    with pytest.raises(Fenced):
        run(log, 3)
    assert len(reopened(newer).data_files("state")) == 2


def test_a_failed_rewrite_leaves_no_file(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("state", partition): changes("a=1") for partition in range(3)})
    before = sorted(log.place.folder.glob("data/*"))

    def failing(work: Callable[[Rewrite], Rewritten], parts: Sequence[Rewrite]) -> Iterator[Rewritten]:
        for part in parts[:2]:
            yield work(part)
        raise Unavailable("disk full")

    with pytest.raises(Unavailable):
        compact(
            log,
            meta(log, 3, action="compaction"),
            Kept(slot=("key",)),
            rewind_window_ms=HOUR_MS,
            run=failing,
        )
    assert sorted(log.place.folder.glob("data/*")) == before


def test_a_crash_before_the_commit_of_a_compaction_changes_nothing(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): changes("a=1", "b")})
    before = state(log)

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(
            log,
            meta(log, 3, action="compaction"),
            Kept(slot=("key",)),
            rewind_window_ms=HOUR_MS,
            before_commit=crash,
        )
    again = reopened(log)
    assert state(again) == before
    run(again, 3)


# --- clean-up


def long_log(log: OperatorLog) -> int:
    """A log with a checkpoint after its first compaction; gives that compaction's version."""
    for batch in range(1, CHECKPOINT_EVERY):
        commit_rows(log, batch, {("state", 0): changes("a=1")})
    run(log, CHECKPOINT_EVERY)
    compacted = log.version
    for batch in range(CHECKPOINT_EVERY + 1, 2 * CHECKPOINT_EVERY + 3):
        commit_rows(log, batch, {("state", 0): changes("a=1")}, recorded=batch)
    return compacted


def now_ms(log: OperatorLog) -> int:
    newest = log.newest()
    assert newest is not None
    return 10_000 + newest.clock


def versions(path: Path) -> list[int]:
    return sorted(int(entry.stem) for entry in (path / DELTA_LOG).glob("*.json") if entry.stem.isdecimal())


def data_files(log: OperatorLog) -> int:
    return len(list(log.place.folder.glob("data/*.parquet")))


def test_nothing_is_deleted_inside_the_rewind_window(log: OperatorLog) -> None:
    long_log(log)
    before = data_files(log)
    assert clean_up(log, clock_ms=now_ms(log), rewind_window_ms=0) == 0  # an hour stays, whatever is asked for
    assert (data_files(log), versions(log.place.folder)[0]) == (before, 0)


def test_before_the_rewind_window_entries_and_replaced_files_are_deleted(log: OperatorLog) -> None:
    long_log(log)
    before, rows_before = data_files(log), log.read("state")
    deleted = clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    assert deleted == before - data_files(log) >= CHECKPOINT_EVERY - 1
    assert versions(log.place.folder)[0] == 2 * CHECKPOINT_EVERY
    again = reopened(log)
    assert (again.newest(), again.read("state")) == (log.newest(), rows_before)
    commit_rows(log, 200, {})
    with pytest.raises(StateError, match="cannot be read"):
        LogVersion.at(log.lake, CHECKPOINT_EVERY)


def test_a_file_that_a_later_version_restored_is_not_deleted(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): changes("a=1")})
    removed = log.data_files("state")
    log.commit(meta(log, 2), [], removed)
    log.commit(meta(log, 3), removed)
    for batch in range(4, 2 * CHECKPOINT_EVERY):
        commit_rows(log, batch, {}, recorded=batch)
    clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    assert versions(log.place.folder)[0] >= 2
    assert log.read("state").num_rows == 1


def test_a_pinned_version_can_be_read_after_a_clean_up(log: OperatorLog) -> None:
    compacted = long_log(log)
    pinned = compacted - 1  # all the files that the compaction replaced are live in it
    rows_before = LogVersion.at(log.lake, pinned).read("state")
    clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0, pinned=pinned)
    assert LogVersion.at(log.lake, pinned).read("state") == rows_before


def test_a_clean_up_continues_where_an_interrupted_one_stopped(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_log(log)
    real, calls = Path.unlink, []

    def dying(path: Path, missing_ok: bool = False) -> None:
        calls.append(path)
        if len(calls) > 9:
            raise OSError(5, "Input/output error")
        real(path, missing_ok)

    rows_before = log.read("state")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dying)
        with pytest.raises(EngineError):
            clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    assert reopened(log).read("state") == rows_before
    clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    assert reopened(log).read("state") == rows_before
    assert versions(log.place.folder)[0] == 2 * CHECKPOINT_EVERY


def test_a_clean_up_deletes_a_bounded_part_and_every_version_of_the_window_stays_readable(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "MAX_ENTRIES", 3)
    long_log(log)
    first = 2 * CHECKPOINT_EVERY
    readable = {version: LogVersion.at(log.lake, version).read("state") for version in range(first, log.version + 1)}
    for oldest in (3, 6, first, first):
        clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
        assert versions(log.place.folder)[0] == oldest
        assert {version: LogVersion.at(log.lake, version).read("state") for version in readable} == readable
    commit_rows(log, 200, {})
    assert reopened(log).version == log.version


def test_a_clean_up_reads_the_entries_that_it_deletes_and_few_others(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(1, 120):
        commit_rows(log, batch, {}, recorded=batch)
    read: list[int] = []

    def counted(lake: Lake, version: int) -> object:
        read.append(version)
        return read_actions(lake, version)

    monkeypatch.setattr(cleanup, "read_actions", counted)
    backdate(log, range(20), days=1)
    clean_up(log, clock_ms=now_ms(log), rewind_window_ms=0)
    assert read == list(range(16))


def backdate(log: OperatorLog, found: Iterable[int], *, days: int) -> None:
    """The entries were written that many days ago, by their clocks."""
    for version in found:
        set_clock(log, version, clock_at(log.lake, version) - days * 86_400_000)


def set_clock(log: OperatorLog, version: int, clock_ms: int) -> None:
    """The entry has that clock."""
    info, *others = read_actions(log.lake, version) or []
    written = {"commitInfo": info["commitInfo"] | {"timestamp": clock_ms}}
    entry_path(log.lake, version).write_bytes(encoded([written, *others]))


@pytest.mark.parametrize("wrong", [0, 5])
def test_an_entry_with_a_wrong_clock_does_not_trigger_a_clean_up(log: OperatorLog, wrong: int) -> None:
    long_log(log)
    for version in range(wrong, log.version + 1, 4):
        set_clock(log, version, 5_000)
    before = versions(log.place.folder), data_files(log)
    clean_up(log, clock_ms=now_ms(log), rewind_window_ms=0)
    assert (versions(log.place.folder), data_files(log)) == before


def test_the_version_of_a_time_is_found_by_the_entries_times(log: OperatorLog) -> None:
    for batch in range(1, 9):
        commit_rows(log, batch, {})
    for version in range(9):
        set_clock(log, version, version * 10_000)
    assert [version_at(log.lake, 2, 8, second * 1_000) for second in (0, 19, 20, 29, 30, 80, 999)] == [
        1, 1, 2, 2, 3, 8, 8,
    ]  # fmt: skip


# --- files that no commit ever named


def orphan(log: OperatorLog, batch: int, kind: str = "state", partition: int = 0) -> Path:
    """A file of an attempt of the batch that was never committed."""
    written = a_file(log, kind, partition, changes("z=1"), batch=batch, attempt=uuid4().hex)
    return log.place.folder / written.path


def sweep_often(log: OperatorLog, clock_ms: int) -> None:
    """Sweeps as over many compactions: each one looks through one folder."""
    newest = log.newest()
    assert newest is not None
    for batch in range(newest.batch + 1, newest.batch + 41):
        commit_rows(log, batch, {})
        clean_up(log, clock_ms=clock_ms, rewind_window_ms=30 * 24 * HOUR_MS)


def test_only_files_that_no_commit_named_are_deleted_after_seven_days(log: OperatorLog) -> None:
    for batch in range(1, 6):
        commit_rows(log, batch, {("state", partition): changes("a=1") for partition in range(2)})
    run(log, 6, clock=clock_of(6))  # the files of batches 1 to 5 are in the rewind window only
    kept, now = sorted(log.place.folder.glob("data/*")), clock_of(6)
    backdate(log, range(log.version), days=9)
    gone = [orphan(log, 3), orphan(log, 5), orphan(log, 1, "late"), orphan(log, 2, partition=1)]
    young = [orphan(log, 6), orphan(log, 7)]
    sweep_often(log, now)
    assert [path for path in gone if path.exists()] == []
    assert [path for path in young if not path.exists()] == []
    assert [path for path in kept if not path.exists()] == []
    assert LogVersion.at(log.lake, 4).read("state").num_rows == 8


def test_files_of_a_compaction_that_was_committed_as_a_later_batch_stay(log: OperatorLog) -> None:
    """planned as batch 3 --- batch 3 --- committed as batch 4 --- replaced by another: still in the rewind window"""
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): changes(f"k{batch}=1")})
    planned = meta(log, 3, action="compaction")
    parts = compaction.plan(log, planned, Kept(slot=("key",)))
    done = [compaction.rewrite(part) for part in parts]
    commit_rows(log, 3, {("state", 0): changes("x=1")})
    committed = meta(log, 4, action="compaction", attempt=planned.attempt)
    compaction.commit(log, committed, Prepared(parts=tuple(done)))
    then = log.version
    commit_rows(log, 5, {("state", 0): changes("y=1")})
    run(log, 6, clock=clock_of(6))
    now = now_ms(log)
    kept = sorted(log.place.folder.glob("data/*"))
    backdate(log, range(log.version + 1), days=9)
    sweep_often(log, now)
    assert [path for path in kept if not path.exists()] == []
    assert LogVersion.at(log.lake, then).read("state").num_rows == 3


def test_uncommitted_files_of_batches_before_the_log_s_beginning_are_deleted(log: OperatorLog) -> None:
    long_log(log)
    needed = log.data_files("state")[0]
    found = orphan(log, 2)
    clean_up(log, clock_ms=now_ms(log) + HOUR_MS, rewind_window_ms=0)
    assert versions(log.place.folder)[0] > 2
    sweep_often(log, now_ms(log))
    assert not found.exists()
    assert (log.place.folder / needed.path).exists()


def test_a_file_that_may_still_be_committed_is_never_swept(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): changes("a=1")})
    backdate(log, range(2), days=9)
    running = orphan(log, 10**6)
    sweep_often(log, now_ms(log))
    assert running.exists()


def test_the_sweep_of_a_superseded_driver_ends_where_a_later_one_has_cleaned_up(log: OperatorLog) -> None:
    for batch in range(6):
        commit_rows(log, batch, {("state", 0): changes("a=1")})
    log.lake.delete([found.key for found in log.lake.list_after(DELTA_LOG)])
    with pytest.raises(StartOver, match="another driver"):
        orphans.sweep(log, oldest=log.version, clock_ms=now_ms(log))


def test_each_sweep_checks_a_bounded_number_of_files_and_all_are_found_eventually(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "MAX_FILES", 1)
    commit_rows(log, 1, {("state", 0): changes("a=1")}, attempt="0")  # whose file is listed first
    backdate(log, range(2), days=9)
    found = [orphan(log, 1) for _ in range(3)]
    before = len(found)
    commit_rows(log, 2, {})
    clean_up(log, clock_ms=now_ms(log), rewind_window_ms=30 * 24 * HOUR_MS)
    assert sum(path.exists() for path in found) >= before - 1
    for _ in range(9):
        sweep_often(log, now_ms(log))
    assert not any(path.exists() for path in found)


def test_unfinished_log_files_of_a_killed_driver_are_deleted(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    left, under_way = (log.place.folder / STAGING / (name * 8) for name in ("0f", "1e"))
    for path in (left, under_way):
        path.write_bytes(b"{}")
    os.utime(left, (now_ms(log) / 1_000 - 8 * 86_400,) * 2)
    clean_up(log, clock_ms=now_ms(log), rewind_window_ms=0)
    assert list((log.place.folder / STAGING).iterdir()) == [under_way]


def test_a_large_state_with_few_dead_rows_is_not_rewritten(log: OperatorLog, monkeypatch: pytest.MonkeyPatch):
    """Its small files become one, deletes included: what a local state needs to catch up is still there."""
    monkeypatch.setattr(compaction, "FEW_ROWS", 3)
    commit_rows(log, 1, {("state", 0): changes(*(f"k{n}={n}" for n in range(5_000)))})
    commit_rows(log, 2, {("state", 0): changes("k1=1", "k2")})
    commit_rows(log, 3, {("state", 0): changes("k1=2")})
    parts = compaction.plan(log, meta(log, 4), Kept(slot=("key",)), held={0: 4_999})
    [part] = [part for part in parts if part.kind == "state"]
    assert not part.snapshot
    assert sorted(file.min_batch for file in part.files) == [2, 3]
    rows = read_files(log.lake, compaction.rewrite(part).files, log.schema)
    assert rows.select(["batch", "op", "key", "value"]).to_pylist() == [
        {"batch": 2, "op": "delete", "key": b"k2", "value": None},
        {"batch": 3, "op": "put", "key": b"k1", "value": b"2"},
    ]


def test_a_state_with_half_of_its_rows_dead_is_rewritten_as_a_snapshot(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compaction, "FEW_ROWS", 3)
    for batch in range(1, 5):
        commit_rows(log, batch, {("state", 0): changes("a=1", "b=2")})
    parts = compaction.plan(log, meta(log, 5), Kept(slot=("key",)), held={0: 2})
    assert [part.snapshot for part in parts if part.kind == "state"] == [True]


def test_a_background_compaction_rewrites_a_bounded_part_and_later_ones_the_rest(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(8):
        commit_rows(log, batch + 1, {("state", batch % 4): changes("a=1")})
    size = sum(file.size for file in log.data_files("state", 0))
    monkeypatch.setattr(compaction, "MAX_BACKGROUND_BYTES", 2 * size + size // 2)
    held = dict.fromkeys(range(4), 1)
    turns = [compaction.plan(log, meta(log, batch), Kept(slot=("key",)), held=held) for batch in range(9, 36)]
    assert {len(parts) for parts in turns} == {2}
    assert {part.partition for parts in turns for part in parts} == {0, 1, 2, 3}
    assert len(compaction.plan(log, meta(log, 9), Kept(slot=("key",)))) == 4, "one that is asked for takes all"
    monkeypatch.setattr(compaction, "MAX_BACKGROUND_BYTES", 1)
    assert len(compaction.plan(log, meta(log, 9), Kept(slot=("key",)), held=held)) == 1


# --- maintenance by others beside a compaction


class Compactor:
    """A driver that plans a compaction, runs batches meanwhile and commits it later; it starts over when it must."""

    def __init__(self, log: OperatorLog) -> None:
        self.log, self.batches = log, 0
        self.planned: tuple[BatchMeta, Prepared] | None = None

    def next_meta(self, action: str) -> BatchMeta:
        newest = self.log.newest()
        return meta(self.log, 1 if newest is None else newest.batch + 1, action=action)

    def batch(self) -> None:
        self.batches += 1
        number = self.next_meta("batch").batch
        commit_rows(self.log, number, {("state", 0): changes(f"k{self.batches}=1"), ("emission", 0): rows("e")})

    def plan(self) -> None:
        made = self.next_meta("compaction")
        self.planned = made, prepare(self.log, made, Kept(slot=("key",)))

    def commit(self) -> None:
        if self.planned is None:
            return
        made, prepared = self.planned
        self.planned = None
        try:
            compaction.commit(self.log, replace(made, batch=self.next_meta("compaction").batch), prepared)
        except EngineError:
            self.start_over()

    def start_over(self) -> None:
        self.log, self.planned = reopened(self.log), None


def orders() -> list[str]:
    """Every order of the steps in which a compaction is committed after it was planned.

    b: a batch; o: somebody's OPTIMIZE; p: a compaction is planned and rewritten; c: it is committed; s: a new start.
    `make test-fast` plays two orders for each thing that can happen between plan and commit.
    """
    every = {
        "".join(order)
        for steps in ("bopcs", "bopoc")
        for order in permutations(steps)
        if "c" in order[order.index("p") :]
    }
    by_meanwhile: dict[str, list[str]] = {}
    for order in sorted(every):
        by_meanwhile.setdefault(order[order.index("p") : order.index("c")], []).append(order)
    return [order for played in by_meanwhile.values() for order in (played if WHOLE else played[:2])]


@pytest.mark.parametrize("order", orders())
def test_an_optimize_by_others_at_any_moment_of_a_compaction_doubles_and_loses_no_row(
    tmp_path: Path, order: str
) -> None:
    driver = Compactor(new_log(tmp_path / OPERATOR))
    for _ in range(2):
        driver.batch()
    does = {"b": driver.batch, "p": driver.plan, "c": driver.commit, "s": driver.start_over}
    does["o"] = lambda: DeltaTable(str(driver.log.place.folder)).optimize.compact()
    for step in order:
        does[step]()
    assert_every_row_once(driver)
    driver.start_over()
    driver.plan()
    driver.commit()
    assert_every_row_once(driver)
    assert len(driver.log.data_files("state")) == 1, "a compaction that is planned anew is committed"


def test_a_compaction_whose_files_are_gone_leaves_no_file(log: OperatorLog) -> None:
    driver = Compactor(log)
    driver.batch()
    driver.batch()
    driver.plan()
    DeltaTable(str(log.place.folder)).optimize.compact()
    driver.batch()
    there = set(log.place.folder.glob("data/*"))
    assert driver.planned is not None
    prepared = driver.planned[1]
    rewritten = {log.place.folder / file.path for part in prepared.parts for file in part.files}
    rewritten |= {log.place.folder / file.path for file in prepared.records}
    driver.commit()
    assert set(log.place.folder.glob("data/*")) == there - rewritten


def assert_every_row_once(driver: Compactor) -> None:
    """As the driver's handle has the log, as a new one has it, and as another Delta reader has it."""
    batches = list(range(1, 1 + driver.batches))
    for log in (driver.log, reopened(driver.log)):
        assert [row[3] for row in state(log)] == [b"k%d" % batch for batch in batches]
        assert len(log.read("emission")) == len(batches)
        numbers = log.read("meta", columns=["batch"]).column("batch").to_pylist()
        assert numbers == list(range(1, 1 + len(numbers)))
    table = DeltaTable(str(driver.log.place.folder)).to_pyarrow_table(filters=[("kind", "=", "emission")])
    assert table.num_rows == len(batches)
