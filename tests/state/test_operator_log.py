"""The operator log on a real Delta table: commits, the fence, what is refused at start."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.state.logs import OPERATOR, SCHEMA, commit_rows, files, meta, new_log, reopened, rows
from tidegate.contracts.errors import EngineError, Fenced, StateError
from tidegate.contracts.schema import log_schema
from tidegate.state import operator_log
from tidegate.state.data_files import delete_attempt, write_file
from tidegate.state.log_entries import entry_path, read_actions
from tidegate.state.operator_log import OperatorLog

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
    committed = commit_rows(log, 1, {("emission", 0): rows("a", "b")}, offsets={"t": {0: 2}}, last={0: (1, "x")})
    for handle in (log, reopened(log), OperatorLog.at(log.path, log.version)):
        assert handle.newest() == committed
        read = handle.read("emission")
        assert read.schema.equals(SCHEMA)
        assert read.select(["kind", "partition", "batch", "seq", "key", "topic", "offset"]).to_pylist() == [
            {"kind": "emission", "partition": 0, "batch": 1, "seq": i, "key": key, "topic": "t", "offset": None}
            for i, key in enumerate([b"a", b"b"])
        ]


def test_a_commit_carries_the_application_transaction_and_the_metadata_for_tools(log: OperatorLog) -> None:
    committed = commit_rows(log, 4, {})
    actions = read_actions(log.path, log.version) or []
    assert {"txn": {"appId": "tidegate/tally", "version": 4}} in actions
    assert next(a["commitInfo"]["tidegate"] for a in actions if "commitInfo" in a) == committed.to_json()


def test_rows_are_read_by_partition_batch_and_seq_from_a_batch_on(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 1): rows("d"), ("state", 0): rows("a")})
    commit_rows(log, 2, {("state", 0): rows("b", "c")})
    assert keys(log.read("state")) == [b"a", b"b", b"c", b"d"]
    assert keys(log.read("state", 0, after_batch=1)) == [b"b", b"c"]
    assert log.read("state", columns=["key"]).column_names == ["key"]
    assert log.batches("state", 0) == [1, 2]
    assert log.batches("state", 0, after_batch=1) == [2]


def test_a_file_with_many_batches_gives_only_those_asked_for(log: OperatorLog) -> None:
    first = meta(log, 1)
    table = rows("a", "b", "c").append_column("batch", pa.array([1, 2, 3])).append_column("seq", pa.array([0, 0, 0]))
    log.commit(first, [write_file(log.path, "state", 0, table, batch=1, attempt=first.attempt)])
    assert keys(log.read("state", 0, after_batch=1)) == [b"b", b"c"]


def test_a_handle_at_an_earlier_version_reads_what_was_there(log: OperatorLog) -> None:
    first = commit_rows(log, 1, {("state", 0): rows("a")})
    then = log.version
    commit_rows(log, 2, {("state", 0): rows("b")})
    assert keys(OperatorLog.at(log.path, then).read("state")) == [b"a"]
    assert OperatorLog.at(log.path, then).newest() == first


def test_the_tally_follows_commits_as_if_it_were_counted_anew(log: OperatorLog) -> None:
    assert log.tally.files == 0
    old = commit_rows(log, 1, {("state", 0): rows("a", "b"), ("late", 0): rows("c")})
    assert old.batch == 1
    replacing = meta(log, 2)
    log.commit(replacing, files(log, replacing, {("state", 0): rows("a")}), log.data_files("state"))
    assert log.tally == reopened(log).tally
    assert log.tally.state_rows == 1


def test_other_readers_see_the_same_rows(log: OperatorLog) -> None:
    for batch in range(1, 4):
        commit_rows(log, batch, {("emission", 0): rows(f"a{batch}"), ("late", 1): rows("l")})
    expected = log.read("emission").select(["batch", "seq", "key", "topic"]).to_pylist()
    delta = pa.table(DeltaTable(str(log.path)).scan(["batch", "seq", "key", "topic"], "kind = 'emission'"))
    assert sorted(delta.to_pylist(), key=lambda row: row["batch"]) == expected
    uris = DeltaTable(str(log.path)).file_uris()
    duck = duckdb.sql(
        "SELECT batch, seq, key, topic FROM read_parquet($uris, hive_partitioning=true, union_by_name=true) "
        "WHERE kind = 'emission' ORDER BY batch",
        params={"uris": uris},
    )
    assert [dict(zip(duck.columns, row, strict=True)) for row in duck.fetchall()] == expected


def test_the_table_needs_no_feature_that_a_plain_reader_lacks(log: OperatorLog) -> None:
    protocol = DeltaTable(str(log.path)).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (1, 2, None)


def test_log_checkpoints_change_nothing_that_is_read(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 3)
    for batch in range(1, 9):
        commit_rows(log, batch, {("state", 0): rows(str(batch))})
    assert len(list((log.path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    assert keys(log.read("state")) == [str(batch).encode() for batch in range(1, 9)]
    assert reopened(log).newest() == log.newest()


def test_a_batch_number_is_never_used_again(log: OperatorLog) -> None:
    commit_rows(log, 2, {})
    with pytest.raises(StateError, match="never used again"):
        commit_rows(log, 2, {})


def test_files_of_a_failed_attempt_are_deleted_by_name(log: OperatorLog) -> None:
    failed, good = meta(log, 1), meta(log, 1)
    files(log, failed, {("state", 0): rows("x"), ("late", 1): rows("y")})
    log.commit(good, files(log, good, {("state", 0): rows("a")}))
    assert delete_attempt(log.path, failed.attempt) == 2
    assert keys(log.read("state")) == [b"a"]


# --- the fence


def test_a_driver_that_was_overtaken_is_fenced(log: OperatorLog) -> None:
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


def test_a_claim_that_an_older_driver_outran_starts_over(log: OperatorLog) -> None:
    commit_rows(log, 1, {}, epoch=1)
    claimant = reopened(log)
    commit_rows(log, 2, {}, epoch=1)
    with pytest.raises(EngineError, match="won the race"):
        commit_rows(claimant, 2, {}, epoch=2)
    commit_rows(reopened(log), 3, {}, epoch=2)


def write_error(landed: bool, times: int) -> tuple[Callable[..., None], list[int]]:
    """A `create_write_transaction` that fails without an answer `times` times, after or before the write."""
    real, calls = DeltaTable.create_write_transaction, []

    def wrapped(*args: object, **named: object) -> None:
        calls.append(1)
        if landed or len(calls) > times:
            real(*args, **named)
        if len(calls) <= times:
            raise OSError("no answer from the lake")

    return wrapped, calls


def test_an_unclear_commit_that_had_landed_is_found_to_be_committed(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped, calls = write_error(landed=True, times=1)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", wrapped)
    committed = commit_rows(log, 1, {("state", 0): rows("a")})
    assert (len(calls), log.version, log.newest()) == (2, 1, committed)
    assert keys(log.read("state")) == [b"a"]


def test_an_unclear_commit_that_had_not_landed_is_tried_again(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped, calls = write_error(landed=False, times=2)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", wrapped)
    commit_rows(log, 1, {("state", 0): rows("a")})
    assert (len(calls), log.version, keys(log.read("state"))) == (3, 1, [b"a"])


def test_a_commit_that_stays_unclear_is_an_engine_error_and_the_next_claim_settles_it(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped, _ = write_error(landed=False, times=99)
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", wrapped)
        with pytest.raises(EngineError, match="does not say"):
            commit_rows(log, 1, {("state", 0): rows("a")})
    again = reopened(log)
    commit_rows(again, 1, {}, epoch=2)
    assert keys(again.read("state")) == []


def foreign_append(log: OperatorLog) -> None:
    table = pa.table({"kind": ["state"], "partition": pa.array([0], pa.int32()), "key": [b"x"]})
    write_deltalake(str(log.path), table, mode="append", schema_mode="merge")


def test_a_foreign_change_of_data_beside_a_commit_stops(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    foreign_append(log)
    with pytest.raises(StateError, match="somebody else changed"):
        commit_rows(log, 2, {})


def test_a_foreign_change_of_data_is_refused_at_start_with_the_way_on(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    foreign_append(log)
    with pytest.raises(StateError, match="somebody else changed") as refused:
        reopened(log)
    assert f"{2:020d}.json" in str(refused.value)
    assert refused.value.remedy


def test_a_foreign_change_under_the_newest_own_commit_is_refused_at_start_too(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    foreign_append(log)
    with pytest.raises(StateError):
        commit_rows(log, 2, {})
    with pytest.raises(StateError, match="somebody else changed"):
        reopened(log)


def test_a_raw_restore_is_refused_at_start(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    commit_rows(log, 2, {("state", 0): rows("b")})
    DeltaTable(str(log.path)).restore(1)
    with pytest.raises(StateError, match="RESTORE"):
        reopened(log)


def test_a_foreign_optimize_is_tolerated_and_batch_and_seq_stay(log: OperatorLog) -> None:
    commit_rows(log, 1, {("state", 0): rows("a", "b")})
    commit_rows(log, 2, {("state", 0): rows("c")})
    DeltaTable(str(log.path)).optimize.compact()
    commit_rows(log, 3, {("state", 0): rows("d")})
    again = reopened(log)
    assert keys(again.read("state")) == [b"a", b"b", b"c", b"d"]
    assert keys(again.read("state", after_batch=2)) == [b"d"]


def test_update_incremental_is_used_nowhere() -> None:
    sources = Path(operator_log.__file__).parents[1].rglob("*.py")
    assert not [path for path in sources if re.search(r"\.update_incremental\(", path.read_text())]


# --- what is refused at start


@pytest.mark.parametrize("content", ["", '{"add":{"pa'])
def test_a_newest_entry_that_is_empty_or_cut_short_stops_and_is_named(log: OperatorLog, content: str) -> None:
    commit_rows(log, 1, {})
    broken = entry_path(log.path, 2)
    broken.write_text(content)
    with pytest.raises(StateError, match="empty or cut short") as stopped:
        reopened(log)
    assert stopped.value.value == broken


def test_a_log_with_a_missing_entry_is_refused(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {})
    entry_path(log.path, 2).unlink()
    with pytest.raises(StateError):
        reopened(log)


def test_a_log_whose_newest_entry_is_missing_under_a_checkpoint_is_refused(log: OperatorLog) -> None:
    for batch in (1, 2, 3):
        commit_rows(log, batch, {})
    DeltaTable(str(log.path)).create_checkpoint()
    entry_path(log.path, 3).unlink()
    with pytest.raises(StateError, match="not the one that its entries show"):
        reopened(log)


def test_a_log_that_is_not_there_is_not_made_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no operator log"):
        OperatorLog.open(tmp_path / "none", OPERATOR, SCHEMA, create=False)
    assert not (tmp_path / "none").exists()


def test_a_log_of_another_operator_is_refused(log: OperatorLog) -> None:
    with pytest.raises(StateError, match="another operator"):
        OperatorLog.open(log.path, "other", SCHEMA, create=True)


def test_a_log_with_other_columns_is_refused(log: OperatorLog) -> None:
    with pytest.raises(StateError, match="other columns") as refused:
        OperatorLog.open(log.path, OPERATOR, log_schema([pa.field("place", pa.int64())]), create=True)
    assert "place" in str(refused.value)


def test_a_log_of_another_format_is_refused(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "FORMAT", 2)
    with pytest.raises(StateError, match="another format"):
        reopened(log)


def test_a_log_without_the_metadata_row_of_its_newest_batch_is_refused(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    newest = entry_path(log.path, log.version)
    newest.write_text("\n".join(line for line in newest.read_text().splitlines() if '"add"' not in line))
    with pytest.raises(StateError, match="lacks the metadata row"):
        reopened(log)
