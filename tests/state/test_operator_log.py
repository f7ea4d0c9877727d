"""The operator log on a real Delta table: commits, the fence, what is refused at start."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import sized
from tests.lakes import checkpoint_path, entry_path, lake_at
from tests.patience import PATIENCE_S
from tests.state.logs import OPERATOR, SCHEMA, a_file, commit_rows, files, meta, new_log, reopened, rows
from tidegate.contracts.batch_metadata import Counts, is_complete
from tidegate.contracts.errors import EngineError, Fenced, Outdated, StateError, Unavailable, UserError
from tidegate.contracts.log_schema import FORMAT, log_schema
from tidegate.state import disk
from tidegate.state.delta_log import operator_log, refusals
from tidegate.state.delta_log.attempt_files import Naming, delete_attempt, write_file
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.state.delta_log.log_entries import (
    DELTA_LOG,
    checkpoint_key,
    document_of,
    encoded,
    newest_version,
    put_entry,
    read_actions,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.lake.posix_lake import STAGING, PosixLake

pytestmark = pytest.mark.fast


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / OPERATOR)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "RETRY_PAUSES_S", (0.0, 0.0, 0.0))


def keys(table: pa.Table) -> list[bytes]:
    return table.column("key").to_pylist()


# --- what a commit holds


def test_a_new_log_has_no_batch(log: OperatorLog) -> None:
    assert (log.newest(), log.version) == (None, 0)


def test_a_commit_is_read_back_with_its_metadata_by_any_handle(log: OperatorLog) -> None:
    committed = commit_rows(log, 1, {("emission", 0): rows("a", "b")}, next_offset={0: 2}, last={0: (1, "x")})
    for handle in (log, reopened(log), LogVersion.at(log.lake, log.version)):
        assert handle.newest() == committed
        read = handle.read("emission")
        assert read.schema.equals(SCHEMA)
        assert read.select(["kind", "partition", "batch", "seq", "key", "topic", "offset"]).to_pylist() == [
            {"kind": "emission", "partition": 0, "batch": 1, "seq": i, "key": key, "topic": "t", "offset": None}
            for i, key in enumerate([b"a", b"b"])
        ]


def test_a_commit_carries_the_application_transaction_and_its_metadata(log: OperatorLog) -> None:
    committed = commit_rows(log, 4, {})
    actions = read_actions(log.lake, log.version) or []
    assert {"txn": {"appId": "tidegate/tally", "version": 4}} in actions
    assert next(a["commitInfo"]["tidegate"] for a in actions if "commitInfo" in a) == committed.to_json()


def test_metadata_is_rebuilt_from_the_newest_complete_metadata(log: OperatorLog) -> None:
    commit_rows(log, 1, {}, next_offset={0: 1, 1: 1}, last={0: (1, "x"), 1: (1, "x")}, skipped={0: (0, 1)})
    commit_rows(log, 2, {}, next_offset={0: 1, 1: 2}, last={0: (1, "x"), 1: (2, "y")}, counts={1: Counts(applied=1)})
    committed = commit_rows(log, 3, {}, next_offset={0: 3, 1: 2}, last={0: (3, "z")}, dead_letters="d")
    documents = [document_of(read_actions(log.lake, version) or []) or {} for version in (1, 2, 3)]
    assert [document.get("base") for document in documents] == [None, 1, 1]
    assert documents[2]["last"] == {"0": [3, "z"], "1": None}
    assert reopened(log).newest() == LogVersion.at(log.lake, 3).newest() == committed


def test_claims_compactions_and_checkpointed_commits_have_complete_metadata(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions 1 (claim), 3 (compaction), 5 (a checkpoint is due), 8 (claim), 10 (a checkpoint is due)."""
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 5)
    for batch in range(1, 12):
        commit_rows(log, batch, {}, epoch=1 + batch // 8, action="compaction" if batch == 3 else "batch")
    documents = {version: document_of(read_actions(log.lake, version) or []) or {} for version in range(1, 12)}
    assert [version for version, document in documents.items() if is_complete(document)] == [1, 3, 5, 8, 10]
    assert [version for version in range(12) if checkpoint_path(log.lake, version).exists()] == [5, 10]


def test_a_checkpoint_is_written_only_for_a_version_with_complete_metadata(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is due at version 4, which says what it changed: it is written of version 5."""
    for batch in range(1, 5):
        commit_rows(log, batch, {})
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 2)
    for batch in (5, 6):
        commit_rows(log, batch, {})
    assert [version for version in range(7) if checkpoint_path(log.lake, version).exists()] == [5]


def test_a_checkpoint_that_was_begun_is_written_once_and_the_next_commit_waits_for_it(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 2)
    commit_rows(log, 1, {})
    commit_rows(log, 2, {("state", 0): rows("a")})
    begun: list[Callable[[], None]] = []
    end: Future[None] = Future()

    def begin(write: Callable[[], None]) -> Future[None]:
        begun.append(write)
        return end

    log.begin_checkpoint(begin)
    log.begin_checkpoint(begin)
    with ThreadPoolExecutor(1) as beside:
        committed = beside.submit(commit_rows, log, 3, {("state", 0): rows("b")})
        with pytest.raises(TimeoutError):
            committed.result(0.1)
        assert log.version == 2
        [write] = begun
        write()
        end.set_result(None)
        committed.result(PATIENCE_S)
    assert [version for version in range(5) if checkpoint_path(log.lake, version).exists()] == [2]
    assert reopened(log).newest() == log.newest()
    assert keys(reopened(log).read("state")) == [b"a", b"b"]


def test_if_a_checkpoint_that_was_begun_fails_the_next_commit_does_and_the_one_after_it_writes_it(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 2)
    commit_rows(log, 1, {})
    commit_rows(log, 2, {})
    failed: Future[None] = Future()
    failed.set_exception(Unavailable("disk full"))
    log.begin_checkpoint(lambda write: failed)
    with pytest.raises(Unavailable):
        commit_rows(log, 3, {})
    assert not checkpoint_path(log.lake, 2).exists()
    commit_rows(log, 3, {})
    assert checkpoint_path(log.lake, 2).exists()


def test_delta_never_cleans_up_the_log_by_itself(log: OperatorLog) -> None:
    assert DeltaTable(str(log.place.folder)).metadata().configuration["delta.enableExpiredLogCleanup"] == "false"


def test_rows_are_read_by_partition_batch_and_seq_from_a_batch_on(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 1): rows("d"), ("state", 0): rows("a")})
    commit_rows(log, 2, {("state", 0): rows("b", "c")})
    assert keys(log.read("state")) == [b"a", b"b", b"c", b"d"]
    assert keys(log.read("state", 0, after_batch=1)) == [b"b", b"c"]
    assert log.read("state", columns=["key"]).column_names == ["key"]
    assert log.batches("state", 0) == [1, 2]
    assert log.batches("state", 0, after_batch=1) == [2]


def test_the_kind_of_the_rows_is_written_once_for_each_part(log: OperatorLog) -> None:
    batch = meta(log, 0)
    (file,) = files(log, batch, {("state", 0): rows("a"), ("state", 1): rows("b"), ("emission", 1): rows("c")})
    parquet = pq.ParquetFile(log.lake.place.folder / file.path).metadata
    kinds = [parquet.row_group(number).column(0) for number in range(parquet.num_row_groups)]
    assert {column.path_in_schema for column in kinds} == {"kind"}
    assert all("RLE_DICTIONARY" in column.encodings for column in kinds)


def test_a_column_without_values_is_not_in_the_file_and_reads_as_null(log: OperatorLog) -> None:
    table = rows("a").append_column("headers", pa.nulls(1, pa.binary()))
    commit_rows(log, 1, {("state", 0): table, ("emission", 0): rows("b").drop_columns("value")})
    [file] = log.data_files("state", 0)
    written = pq.read_schema(log.lake.place.folder / file.path).names
    assert {"key", "value", "headers"} & {*written} == {"key", "value"}
    assert log.read("state", 0)["headers"].to_pylist() == log.read("emission", 0)["value"].to_pylist() == [None]


def test_a_file_with_many_batches_gives_only_those_asked_for(log: OperatorLog) -> None:
    first = meta(log, 1)
    table = rows("a", "b", "c").append_column("batch", pa.array([1, 2, 3])).append_column("seq", pa.array([0, 0, 0]))
    log.commit(first, [write_file(log.lake, Naming(FORMAT, 1, first.attempt, 0), "state", 0, table)])
    assert keys(log.read("state", 0, after_batch=1)) == [b"b", b"c"]


def test_a_handle_at_an_earlier_version_reads_that_version(log: OperatorLog) -> None:
    first = commit_rows(log, 1, {("state", 0): rows("a")})
    then = log.version
    commit_rows(log, 2, {("state", 0): rows("b")})
    assert keys(LogVersion.at(log.lake, then).read("state")) == [b"a"]
    assert LogVersion.at(log.lake, then).newest() == first


def test_the_tracked_size_equals_a_recount_after_each_commit(log: OperatorLog) -> None:
    assert log.size.files == 0
    old = commit_rows(log, 1, {("state", 0): rows("a", "b"), ("late", 0): rows("c")})
    assert old.batch == 1
    replacing = meta(log, 2)
    log.commit(
        replacing, files(log, replacing, {("state", 0): rows("a")}), [*log.data_files("state"), *log.data_files("late")]
    )
    assert log.size == reopened(log).size
    assert log.size.state_rows == 1


def test_other_readers_see_the_same_rows(log: OperatorLog) -> None:
    for batch in range(1, 4):
        commit_rows(log, batch, {("emission", 0): rows(f"a{batch}"), ("late", 1): rows("l")})
    expected = log.read("emission").select(["batch", "seq", "key", "topic"]).to_pylist()
    delta = pa.table(DeltaTable(str(log.place.folder)).scan(["batch", "seq", "key", "topic"], "kind = 'emission'"))
    assert sorted(delta.to_pylist(), key=lambda row: row["batch"]) == expected
    uris = DeltaTable(str(log.place.folder)).file_uris()
    duck = duckdb.sql(
        "SELECT batch, seq, key, topic FROM read_parquet($uris, hive_partitioning=true, union_by_name=true) "
        "WHERE kind = 'emission' ORDER BY batch",
        params={"uris": uris},
    )
    assert [dict(zip(duck.columns, row, strict=True)) for row in duck.fetchall()] == expected


def test_the_table_needs_no_feature_that_a_plain_reader_lacks(log: OperatorLog) -> None:
    protocol = DeltaTable(str(log.place.folder)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (1, 2, None)


@given(st.data())
@sized(15)
def test_a_handle_equals_a_newly_loaded_one_and_that_of_delta_rs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator_log, "CHECKPOINT_EVERY", data.draw(st.integers(1, 4), label="checkpoint every"))
        log = new_log(tmp_path_factory.mktemp("log") / OPERATOR)
        for batch in range(1, data.draw(st.integers(1, 9), label="batches") + 1):
            old = data.draw(st.sets(st.sampled_from(sorted(log._snapshot.files) or [""])), label="replaced")
            replaced = [log._snapshot.files[path] for path in old - {""}]
            committed = meta(log, batch)
            kind = data.draw(st.sampled_from(["state", "late"]), label="kind")
            log.commit(committed, files(log, committed, {(kind, 0): rows("a", "b")}), replaced)
    version = data.draw(st.integers(0, log.version), label="version")
    for handle, other in ((log, load(log.lake, log.version)), (None, load(log.lake, version))):
        delta = DeltaTable(str(log.place.folder), version=other.version)
        assert set(other.files) == {row["path"] for row in pa.table(delta.get_add_actions()).to_pylist()}
        assert other.transactions.get("tidegate/tally", {}).get("version") == delta.transaction_version(
            "tidegate/tally"
        )
        assert other.metadata["id"] == delta.metadata().id
        assert handle is None or (handle._snapshot.files, handle._snapshot.state_rows) == (
            other.files,
            other.state_rows,
        )


def test_a_handle_lists_no_folder_of_the_log_after_its_start(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the log is listed")

    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 2)
    with monkeypatch.context() as patch:
        for name in ("listdir", "scandir"):
            patch.setattr(os, name, refuse)
        for batch in range(1, 6):
            commit_rows(log, batch, {("state", 0): rows("a")})
        assert LogVersion.at(log.lake, 3).read("state").num_rows == 3


def test_checkpoints_of_delta_rs_are_read_too(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a", "b"), ("late", 1): rows("c")})
    commit_rows(log, 2, {("late", 1): rows("d")})
    log.commit(meta(log, 3), [], log.data_files("late", after_batch=1))
    before = load(log.lake, 3)
    DeltaTable(str(log.place.folder)).create_checkpoint()
    entry_path(log.lake, 0).unlink()
    after = load(log.lake, 3)
    assert (after.files, after.state_rows) == (before.files, before.state_rows)
    assert reopened(log).newest() == log.newest()


def test_a_damaged_checkpoint_stops_and_is_named(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    checkpoint_path(log.lake, 1).write_bytes(b"PAR1")
    with pytest.raises(StateError, match="damaged") as stopped:
        reopened(log)
    assert str(stopped.value.value) == str(checkpoint_path(log.lake, 1))


def test_a_checkpoint_of_many_rows_waits_for_more_commits(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(operator_log, "CHECKPOINT_FILES_PER_ENTRY", 2)
    for batch in range(1, 12):
        commit_rows(log, batch, {("late", 0): rows("x")})
    found = sorted(int(path.name[:20]) for path in (log.place.folder / DELTA_LOG).glob("*.checkpoint.parquet"))
    assert found == [3, 9]  # 3 files: 2 + 1 commits; 9 files: 2 + 4 commits after that


def test_log_checkpoints_change_nothing_that_is_read(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 3)
    for batch in range(1, 9):
        commit_rows(log, batch, {("state", 0): rows(str(batch))})
    assert len(list((log.place.folder / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    assert keys(log.read("state")) == [str(batch).encode() for batch in range(1, 9)]
    assert reopened(log).newest() == log.newest()
    for version in (3, 6):  # from their checkpoints alone
        at_checkpoint = LogVersion.at(log.lake, version).newest()
        assert at_checkpoint is not None and at_checkpoint.batch == version


def test_the_newest_version_is_found_from_the_newest_checkpoint_on_without_a_listing(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 3)
    for batch in range(1, 9):
        commit_rows(log, batch, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda _folder: pytest.fail("a listing"))
        assert newest_version(log.lake) == 8
    hint = log.place.folder / DELTA_LOG / "_last_checkpoint"
    for wrong in ("", "{}", '{"version":7000}'):
        hint.write_text(wrong)
        assert newest_version(log.lake) == 8


def test_an_entry_missing_after_the_newest_checkpoint_is_refused(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 3)
    for batch in range(1, 9):
        commit_rows(log, batch, {})
    entry_path(log.lake, 7).unlink()
    with pytest.raises(StateError, match="newest version is not the one"):
        reopened(log)


def test_a_batch_number_is_never_used_again(log: OperatorLog) -> None:
    commit_rows(log, 2, {})
    with pytest.raises(StateError, match="never used again"):
        commit_rows(log, 2, {})


def test_files_of_a_failed_attempt_are_deleted_by_name(log: OperatorLog) -> None:
    failed, good = meta(log, 1), meta(log, 1)
    files(log, failed, {("state", 0): rows("x"), ("late", 1): rows("y")})
    log.commit(good, files(log, good, {("state", 0): rows("a")}))
    assert delete_attempt(log.lake, log.format, failed.batch, failed.attempt, [0, 1]) == 1
    assert keys(log.read("state")) == [b"a"]


def test_a_batch_that_fails_before_its_log_entry_is_written_leaves_no_files(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the checkpoint that is due has been written in part."""
    commit_rows(log, 1, {("state", 0): rows("a")})
    before = sorted(log.place.folder.glob("data/*"))
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 1)
    real = operator_log.write_checkpoint

    def full(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        raise Unavailable("disk full")

    monkeypatch.setattr(operator_log, "write_checkpoint", full)
    for attempt in (meta(log, 2), meta(log, 3, action="compaction")):
        worked_out = files(log, replace(attempt, batch=2), {("state", 0): rows("x"), ("late", 1): rows("y")})
        with pytest.raises(Unavailable):
            log.commit(attempt, worked_out)
        assert sorted(log.place.folder.glob("data/*")) == before


# --- the fence


def test_a_superseded_driver_is_fenced(log: OperatorLog) -> None:
    commit_rows(log, 1, {}, epoch=1)
    newer = reopened(log)
    commit_rows(newer, 2, {}, epoch=2)
    with pytest.raises(Fenced):
        commit_rows(log, 2, {("state", 0): rows("zombie")}, epoch=1)
    assert keys(reopened(log).read("state")) == []


def test_an_overtaken_driver_is_fenced_whatever_batch_it_commits(log: OperatorLog) -> None:
    commit_rows(log, 1, {}, epoch=1)
    commit_rows(reopened(log), 2, {}, epoch=2)
    with pytest.raises(Fenced):
        commit_rows(log, 77, {}, epoch=1)


def test_of_two_claims_of_one_epoch_one_wins_and_the_other_starts_over(log: OperatorLog) -> None:
    rival = reopened(log)
    commit_rows(log, 1, {}, epoch=1)
    with pytest.raises(EngineError, match="won the race"):
        commit_rows(rival, 1, {}, epoch=1)


def test_a_claim_starts_over_if_an_older_driver_committed_first(log: OperatorLog) -> None:
    commit_rows(log, 1, {}, epoch=1)
    claimant = reopened(log)
    commit_rows(log, 2, {}, epoch=1)
    with pytest.raises(EngineError, match="won the race"):
        commit_rows(claimant, 2, {}, epoch=2)
    commit_rows(reopened(log), 3, {}, epoch=2)


def write_error(landed: bool, times: int) -> tuple[Callable[..., bool], list[tuple[str, bytes]]]:
    """A `put_if_absent` without an answer `times` times, after or before the write; and what it was asked to put."""
    calls: list[tuple[str, bytes]] = []
    real = PosixLake.put_if_absent

    def wrapped(lake: PosixLake, key: str, data: bytes) -> bool:
        calls.append((key, data))
        done = (landed or len(calls) > times) and real(lake, key, data)
        if len(calls) <= times:
            raise Unavailable("no answer from the lake")
        return done

    return wrapped, calls


def test_an_unclear_commit_that_had_landed_is_found_to_be_committed(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped, calls = write_error(landed=True, times=1)
    monkeypatch.setattr(PosixLake, "put_if_absent", wrapped)
    committed = commit_rows(log, 1, {("state", 0): rows("a")})
    assert (len(calls), log.version, log.newest()) == (2, 1, committed)
    assert keys(log.read("state")) == [b"a"]
    assert log.size == reopened(log).size


def test_an_unclear_commit_that_had_not_landed_is_tried_again_byte_for_byte(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped, calls = write_error(landed=False, times=2)
    monkeypatch.setattr(PosixLake, "put_if_absent", wrapped)
    commit_rows(log, 1, {("state", 0): rows("a")})
    assert (len(calls), len(set(calls)), log.version, keys(log.read("state"))) == (3, 1, 1, [b"a"])


def test_an_unclear_commit_that_a_newer_driver_followed_is_committed_and_the_next_one_is_fenced(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PosixLake.put_if_absent

    def landed_and_followed(lake: PosixLake, key: str, data: bytes) -> bool:
        monkeypatch.setattr(PosixLake, "put_if_absent", real)
        assert real(lake, key, data)
        commit_rows(reopened(log), 2, {}, epoch=2)
        raise Unavailable("no answer from the lake")

    monkeypatch.setattr(PosixLake, "put_if_absent", landed_and_followed)
    commit_rows(log, 1, {("state", 0): rows("a")}, epoch=1)
    with pytest.raises(Fenced):
        commit_rows(log, 3, {}, epoch=1)


def test_an_entry_that_another_program_has_replaced_stops_its_driver(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    log.check_own_entry()
    entry_path(log.lake, 1).write_bytes(encoded([{"commitInfo": {"operation": "OPTIMIZE"}}]))
    with pytest.raises(StateError, match="replaced an entry"):
        log.check_own_entry()
    entry_path(log.lake, 1).unlink()
    with pytest.raises(Unavailable, match="the lake is unavailable"):
        log.check_own_entry()


def test_a_commit_that_stays_unclear_is_unavailable_and_the_next_claim_resolves_it(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped, _ = write_error(landed=False, times=99)
    with monkeypatch.context() as patch:
        patch.setattr(PosixLake, "put_if_absent", wrapped)
        with pytest.raises(Unavailable, match="it is unknown"):
            commit_rows(log, 1, {("state", 0): rows("a")})
    again = reopened(log)
    commit_rows(again, 1, {}, epoch=2)
    assert keys(again.read("state")) == []


def test_an_entry_is_written_atomically_and_never_replaces_another(log: OperatorLog) -> None:
    assert put_entry(log.lake, 1, [{"commitInfo": {"first": True}}])
    assert not put_entry(log.lake, 1, [{"commitInfo": {"first": False}}])
    assert read_actions(log.lake, 1) == [{"commitInfo": {"first": True}}]
    assert list((log.place.folder / STAGING).iterdir()) == []


def test_of_many_writers_of_the_same_version_one_wins(log: OperatorLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        for version in range(1, 30):
            tries = [pool.submit(put_entry, log.lake, version, [{"commitInfo": {"by": by}}]) for by in range(8)]
            won = [by for by, done in enumerate(tries) if done.result()]
            assert read_actions(log.lake, version) == [{"commitInfo": {"by": won[0]}}]
            assert len(won) == 1


@pytest.fixture
def steps(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The syncs of the log's folder and of what is written to it, and the names that are given there, in order."""
    found: list[str] = []
    names = {log.place.folder / DELTA_LOG: "folder", log.place.folder / STAGING: "content"}

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            found.append(name)
            return real(*args, **named)

        return call

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.append(f"sync {names.get(path) or names.get(path.parent) or 'data'}")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", recorded("name", os.link))
    monkeypatch.setattr(os, "replace", recorded("name", os.replace))
    return found


def test_the_entry_is_on_disk_before_its_name_and_the_name_before_the_commit_counts(
    log: OperatorLog, steps: list[str]
) -> None:
    commit_rows(log, 1, {})
    assert steps == ["sync content", "name", "sync folder"]


def test_a_checkpoint_is_on_disk_before_its_name_and_the_name_before_others_follow(
    log: OperatorLog, steps: list[str]
) -> None:
    log.lake.put(checkpoint_key(1), b"checkpoint")
    assert steps == ["sync content", "name", "sync folder"]


def test_data_files_and_their_folders_are_on_disk_before_the_log_names_them(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(Path(f"/proc/self/fd/{descriptor}").readlink()))
    file = a_file(log, "state", 5, rows("a"), batch=1, attempt="x")
    new = log.place.folder / file.path
    assert {new, new.parent, new.parent.parent, log.place.folder} <= synced


def test_a_name_that_cannot_be_made_durable_is_unavailable(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    real = disk.sync

    def failing(path: Path) -> None:
        if path.name == DELTA_LOG:
            raise OSError(5, "Input/output error")
        real(path)

    monkeypatch.setattr(disk, "sync", failing)
    with pytest.raises(Unavailable):
        commit_rows(log, 1, {})


def test_a_missing_lake_is_unavailable_and_no_folder_is_created_in_its_place(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "RETRY_PAUSES_S", (0.0,))
    commit_rows(log, 1, {("state", 0): rows("a")})
    away = log.place.folder.rename(log.place.folder.with_name("away"))
    for work in (
        lambda: commit_rows(log, 2, {}),
        lambda: LogVersion.at(log.lake, 1),
        lambda: log.read("state"),
    ):
        with pytest.raises(Unavailable):
            work()
    away.rename(log.place.folder)
    assert keys(LogVersion.at(log.lake, 1).read("state")) == [b"a"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused_at_once(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_links(_source: Path, _target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(operator_log, "RETRY_PAUSES_S", (0.0, 9.0))
    with pytest.raises(UserError, match="has no hard links") as refused:
        commit_rows(log, 1, {})
    assert "name a folder" in refused.value.remedy


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing, as on an executor with another lake": Path.unlink,
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "of its size, without its end": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"PAR1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_commit_with_a_file_that_is_incomplete_for_the_driver_is_not_written(log: OperatorLog, damage: str) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    batch = meta(log, 2)
    written = files(log, batch, {("state", 0): rows("b"), ("emission", 0): rows("c")})
    [one] = written
    DAMAGE[damage](log.place.folder / one.path)
    with pytest.raises(EngineError, match="is missing or incomplete on the driver's machine") as refused:
        log.commit(batch, written)
    assert one.path in str(refused.value.value)
    assert ("bytes" in str(refused.value.value)) == (damage in ("cut short", "longer"))
    assert "same lake" in refused.value.remedy
    assert reopened(log).newest() == log.newest()
    assert (log.version, set(log.place.folder.glob(f"data/{2:020d}-*"))) == (1, set())
    commit_rows(log, 2, {("state", 0): rows("b")})


def test_a_data_file_that_is_missing_stops_and_is_named(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    (file,) = log.data_files("state")
    (log.place.folder / file.path).unlink()
    with pytest.raises(StateError, match=Path(file.path).name):
        log.read("state")


def test_a_data_file_that_is_damaged_stops_and_is_named(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    (file,) = log.data_files("state")
    (log.place.folder / file.path).write_bytes(b"not Parquet")
    with pytest.raises(StateError, match=Path(file.path).name):
        log.read("state")


def foreign_append(log: OperatorLog) -> None:
    table = pa.table({"kind": ["state"], "partition": pa.array([0], pa.int32()), "key": [b"x"]})
    write_deltalake(str(log.place.folder), table, mode="append", schema_mode="merge")


def test_a_foreign_change_of_data_beside_a_commit_stops(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    foreign_append(log)
    with pytest.raises(StateError, match="another program changed"):
        commit_rows(log, 2, {})


def test_a_foreign_change_of_data_is_refused_at_start_with_the_remedy(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    foreign_append(log)
    with pytest.raises(StateError, match="another program changed") as refused:
        reopened(log)
    assert f"{2:020d}.json" in str(refused.value)
    assert refused.value.remedy


def test_a_foreign_change_under_the_newest_own_commit_is_refused_at_start_too(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    foreign_append(log)
    commit_rows(OperatorLog.at(log.lake, 2), 2, {})
    with pytest.raises(StateError, match="another program changed"):
        reopened(log)


def test_a_raw_restore_is_refused_at_start(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    commit_rows(log, 2, {("state", 0): rows("b")})
    DeltaTable(str(log.place.folder)).restore(1)
    with pytest.raises(StateError, match="RESTORE"):
        reopened(log)


def test_a_foreign_optimize_is_tolerated_and_batch_and_seq_stay(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a", "b")})
    commit_rows(log, 2, {("state", 0): rows("c")})
    DeltaTable(str(log.place.folder)).optimize.compact()
    commit_rows(log, 3, {("state", 0): rows("d")})
    again = reopened(log)
    assert keys(again.read("state")) == [b"a", b"b", b"c", b"d"]
    assert keys(again.read("state", after_batch=2)) == [b"d"]


def test_a_foreign_optimize_while_the_driver_runs_is_tolerated(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a", "b")})
    commit_rows(log, 2, {("state", 0): rows("c")})
    DeltaTable(str(log.place.folder)).optimize.compact()
    commit_rows(log, 3, {("state", 0): rows("d")})
    assert (log.version, keys(log.read("state"))) == (4, [b"a", b"b", b"c", b"d"])
    again = reopened(log)
    assert (log.data_files("state"), log.size) == (again.data_files("state"), again.size)


def test_a_foreign_optimize_under_a_compaction_makes_it_start_over(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_rows(log, batch, {("state", 0): rows(f"k{batch}")})
    replaced = log.data_files("state")
    DeltaTable(str(log.place.folder)).optimize.compact()
    replacing = meta(log, 3)
    with pytest.raises(Outdated, match="no longer in the log"):
        log.commit(replacing, files(log, replacing, {("state", 0): rows("k1", "k2")}), replaced)
    assert keys(reopened(log).read("state")) == [b"k1", b"k2"]


def test_a_foreign_change_of_the_table_makes_the_driver_start_over(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    DeltaTable(str(log.place.folder)).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    with pytest.raises(EngineError, match="won the race"):
        commit_rows(log, 2, {})
    commit_rows(reopened(log), 2, {})


def test_a_raised_delta_protocol_is_refused_at_start(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    put_entry(log.lake, 2, [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}}])
    with pytest.raises(StateError, match="unsupported Delta protocol"):
        reopened(log)


def test_update_incremental_is_used_nowhere() -> None:
    sources = Path(operator_log.__file__).parents[1].rglob("*.py")
    assert not [path for path in sources if re.search(r"\.update_incremental\(", path.read_text())]


# --- what is refused at start


@pytest.mark.parametrize("content", ["", '{"add":{"pa'])
def test_an_empty_or_truncated_newest_entry_stops_and_is_named(log: OperatorLog, content: str) -> None:
    commit_rows(log, 1, {})
    broken = entry_path(log.lake, 2)
    broken.write_text(content)
    with pytest.raises(StateError, match="empty or truncated") as stopped:
        reopened(log)
    assert str(stopped.value.value) == str(broken)


def test_a_log_with_a_missing_entry_is_refused(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {})
    entry_path(log.lake, 2).unlink()
    with pytest.raises(StateError):
        reopened(log)


def test_a_log_whose_newest_entry_is_missing_under_a_checkpoint_is_refused(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {})
    DeltaTable(str(log.place.folder)).create_checkpoint()
    entry_path(log.lake, 3).unlink()
    with pytest.raises(StateError, match="not the one that its entries show"):
        reopened(log)


def test_a_missing_log_is_created_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no operator log"):
        OperatorLog.open(lake_at(tmp_path / "none"), OPERATOR, SCHEMA, create=False)
    assert not (tmp_path / "none").exists()


def test_a_log_of_a_different_operator_is_refused(log: OperatorLog) -> None:
    with pytest.raises(StateError, match="another operator"):
        OperatorLog.open(log.lake, "other", SCHEMA, create=True)


def test_a_log_with_other_columns_is_refused(log: OperatorLog) -> None:
    with pytest.raises(StateError, match="different columns") as refused:
        OperatorLog.open(log.lake, OPERATOR, log_schema([pa.field("place", pa.int64())]), create=True)
    assert "place" in str(refused.value)


def test_a_pipeline_gets_the_columns_of_a_new_step_with_its_next_commit(tmp_path: Path) -> None:
    place, source, phase = lake_at(tmp_path / OPERATOR), pa.field("source", pa.int64()), pa.field("phase", pa.int8())
    before, after = log_schema([source]), log_schema([source, phase])
    log = OperatorLog.open(place, OPERATOR, before, create=True)
    commit_rows(log, 1, {("emission", 0): rows("a")}, next_offset={0: 1}, last={0: (1, "x")})
    wider = OperatorLog.open(place, OPERATOR, after, create=False, steps_change=True)
    assert LogVersion.at(place, None).schema == before
    commit_rows(wider, 2, {}, next_offset={0: 1}, last={0: (1, "x")})
    assert LogVersion.at(place, None).schema == wider.schema == after
    assert wider.read("emission").select(["key", "phase"]).to_pylist() == [{"key": b"a", "phase": None}]
    assert OperatorLog.open(place, OPERATOR, before, create=False, steps_change=True).schema == after
    other = log_schema([source, pa.field("phase", pa.string())])
    for schema, steps_change in ((other, True), (before, False)):
        with pytest.raises(StateError, match="different columns"):
            OperatorLog.open(place, OPERATOR, schema, create=False, steps_change=steps_change)


def test_a_log_of_a_different_format_is_refused(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "READABLE_FORMATS", (4,))
    with pytest.raises(StateError, match="a different format"):
        reopened(log)


@pytest.mark.parametrize(("lacking", "what"), [(1, "entries"), (2, "metadata")])
def test_a_log_without_an_entry_that_its_newest_metadata_needs_is_refused(
    log: OperatorLog, lacking: int, what: str
) -> None:
    """Version 1 is complete, version 2 says what it changed."""
    commit_rows(log, 1, {})
    commit_rows(log, 2, {})
    entry = entry_path(log.lake, lacking)
    entry.write_text("\n".join(line for line in entry.read_text().splitlines() if "commitInfo" not in line))
    with pytest.raises(StateError, match=f"lacks the {what}"):
        reopened(log)


def test_a_handle_detects_a_newer_entry_without_moving(log: OperatorLog):
    rival = reopened(log)
    assert not log.has_successor()
    commit_rows(rival, 1, {}, epoch=2)
    assert log.has_successor()
    assert log.version == 0
