"""The data files of a log: one for all rows of a task; a compaction gives each kind and partition files of its own."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.lakes import lake_at
from tests.state.logs import OPERATOR, SCHEMA, commit_rows, compact_as, files, meta, new_log, reopened, rows
from tidegate.contracts.errors import StateError
from tidegate.contracts.log_schema import META_PARTITION
from tidegate.state.delta_log import operator_log
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep import compaction
from tidegate.state.upkeep.compaction import Kept

pytestmark = pytest.mark.fast

PARTS = [("state", 0), ("emission", 0), ("late", 1), ("state", 1)]


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / OPERATOR)


def commit_all(log: OperatorLog, batch: int) -> None:
    """A batch with rows of all parts."""
    tables = {part: rows(f"{part[0]}{part[1]}-{batch}") for part in PARTS}
    for part in PARTS:
        if part[0] == "state":
            tables[part] = tables[part].append_column("op", pa.array(["put"]))
    tables["late", 1] = tables["late", 1].append_column("cause", pa.array(["too late"]))
    commit_rows(log, batch, tables)


def keys(table: pa.Table) -> list[str]:
    return [key.decode() for key in table.column("key").to_pylist()]


def test_the_rows_of_a_task_are_one_file_with_row_groups_of_their_own(log: OperatorLog) -> None:
    commit_all(log, 1)
    [path] = (log.place.folder / "data").iterdir()
    assert path.name.startswith(f"{1:020d}-")
    content = pq.ParquetFile(path)
    columns = {content.schema_arrow.names[at]: at for at in range(len(content.schema_arrow.names))}
    found = []
    for group in range(content.num_row_groups):
        kind, partition, batch = (
            content.metadata.row_group(group).column(columns[name]).statistics
            for name in ("kind", "partition", "batch")
        )
        assert (kind.min, partition.min, batch.min) == (kind.max, partition.max, batch.max)
        found.append((kind.min, partition.min))
    assert found == PARTS


def test_no_rows_are_no_file(log: OperatorLog) -> None:
    assert files(log, meta(log, 1), {("state", 0): rows(), ("late", 1): rows()}) == []
    assert not (log.place.folder / "data").exists()


def test_each_part_is_read_alone(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_all(log, batch)
    for kind, partition in PARTS:
        assert keys(log.read(kind, partition)) == [f"{kind}{partition}-1", f"{kind}{partition}-2"]
    assert keys(log.read("state")) == ["state0-1", "state0-2", "state1-1", "state1-2"]
    assert log.read("late", 1)["cause"].to_pylist() == ["too late"] * 2
    assert log.read("emission", 1).num_rows == 0
    assert log.size.state_rows == 4


def test_a_compaction_gives_each_kind_and_partition_files_of_its_own(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_all(log, batch)
    before = {part: log.read(*part).to_pylist() for part in PARTS}
    compact_as(log, 3)
    assert {part: log.read(*part).to_pylist() for part in PARTS} == before
    assert [len(log.data_files(*part)) for part in [*PARTS, ("meta", META_PARTITION)]] == [1, 1, 1, 1, 1]
    assert log.size.files == len(PARTS) + 1
    assert log.size == reopened(log).size


def test_a_background_compaction_splits_a_bounded_part_as_a_whole(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(1, 6):
        commit_all(log, batch)
    before = {part: log.read(*part).to_pylist() for part in PARTS}
    size = log.data_files("late", 1)[0].size
    monkeypatch.setattr(compaction, "MAX_BACKGROUND_BYTES", 2 * size)
    for batch in range(6, 12):
        made = meta(log, batch, action="compaction")
        prepared = compaction.prepare(log, made, Kept(slot=("key",)), held={0: 10**9, 1: 10**9})
        assert len({file.path for part in prepared.parts for file in part.replaces if log.whole(file).is_mixed}) <= 2
        compaction.commit(log, made, prepared)
        assert {part: log.read(*part).to_pylist() for part in PARTS} == before
    assert not any(log.whole(file).is_mixed for part in PARTS for file in log.data_files(*part))


def test_a_file_is_never_removed_for_a_part_of_it(log: OperatorLog) -> None:
    commit_all(log, 1)
    with pytest.raises(StateError, match="rows that it has not read"):
        log.commit(meta(log, 2, action="compaction"), [], log.data_files("state", 0))


def test_files_of_a_foreign_optimize_are_read_and_split(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It merges files of all kinds and partitions into one, and does not say whose rows it has."""
    for batch in (1, 2):
        commit_all(log, batch)
    before = {part: log.read(*part).to_pylist() for part in PARTS}
    DeltaTable(str(log.place.folder)).optimize.compact()
    for handle in (reopened(log), LogVersion.at(log.lake, None)):
        assert handle.size.files == 1
        assert {part: handle.read(*part).to_pylist() for part in PARTS} == before
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 1)
    commit_all(log, 3)
    compact_as(log, 4)
    assert {part: log.read(*part).to_pylist()[:2] for part in PARTS} == before
    assert log.size.files == len(PARTS) + 1


def test_a_checkpoint_says_whose_rows_a_file_has(log: OperatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "CHECKPOINT_EVERY", 1)
    for batch in range(1, 4):
        commit_all(log, batch)
    assert reopened(log)._snapshot.files == log._snapshot.files


def test_duckdb_and_delta_rs_read_parts_as_ordinary_columns(log: OperatorLog) -> None:
    commit_all(log, 1)
    table = DeltaTable(str(log.place.folder))
    assert table.metadata().partition_columns == []
    delta = pa.table(table.scan(["key"], "kind = 'state' AND partition = 1"))
    assert delta["key"].to_pylist() == [b"state1-1"]
    uris = table.file_uris()
    found = duckdb.sql("SELECT key FROM read_parquet($uris) WHERE kind = 'late'", params={"uris": uris}).fetchall()
    assert found == [(b"late1-1",)]


def test_a_log_of_format_3_has_room_for_steps(log: OperatorLog) -> None:
    commit_all(log, 1)
    assert SCHEMA.names[:3] == ["kind", "partition", "step"]
    again = OperatorLog.open(lake_at(log.place.folder), OPERATOR, SCHEMA, create=False)
    assert again.read("state", columns=["step"])["step"].to_pylist() == [None, None]
