"""A log of format 2, partitioned by kind and partition, is read and goes on in its format."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.state.logs import OPERATOR, commit_rows, compact_as, files, meta, new_log, reopened, rows
from tidegate.contracts.log_schema import META_PARTITION, PARTITIONED_FORMAT
from tidegate.runtime.batch_loop.next_metadata import after_claim
from tidegate.state.delta_log.attempt_files import delete_attempt
from tidegate.state.delta_log.log_entries import entry_key, read_actions
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.testing.simulation.environment.lake import as_partitioned

pytestmark = pytest.mark.fast

PARTS = [("state", 0), ("emission", 0), ("late", 1), ("state", 1)]


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    """A log that a release of format 2 has created."""
    created = new_log(tmp_path / OPERATOR)
    first = created.place.folder / entry_key(0)
    actions = read_actions(created.lake, 0) or []
    first.write_text("\n".join(json.dumps(as_partitioned(action)) for action in actions))
    return reopened(created)


def commit_all(log: OperatorLog, batch: int) -> None:
    tables = {(kind, partition): rows(f"{kind}{partition}-{batch}") for kind, partition in PARTS}
    put = {part: table.append_column("op", pa.array(["put"])) for part, table in tables.items() if part[0] == "state"}
    commit_rows(log, batch, tables | put)


def test_a_claim_leaves_a_partitioned_log_in_its_format(log: OperatorLog) -> None:
    commit_rows(log, 1, {}, format=PARTITIONED_FORMAT)
    mine = reopened(log)
    newest = mine.newest()
    assert newest is not None
    claim = after_claim(newest, attempt="mine", clock=newest.clock + 1, config="", topics={})
    mine.commit(claim, [])
    assert (claim.format, mine.format, reopened(mine).format) == (PARTITIONED_FORMAT,) * 3


def test_each_kind_and_partition_has_a_file_of_its_own(log: OperatorLog) -> None:
    commit_all(log, 1)
    table = DeltaTable(str(log.place.folder))
    assert table.metadata().partition_columns == ["kind", "partition"]
    assert sorted(path.rpartition("/")[0] for path in table.file_uris()) == sorted(
        f"{log.place.folder}/kind={kind}/partition={partition}" for kind, partition in PARTS
    )
    assert pa.table(table.scan(["key"], "kind = 'state' AND partition = 1"))["key"].to_pylist() == [b"state1-1"]


def test_a_compaction_merges_the_files_of_each_kind_and_partition(log: OperatorLog) -> None:
    for batch in (1, 2):
        commit_all(log, batch)
    before = {part: log.read(*part).to_pylist() for part in PARTS}
    compact_as(log, 3)
    assert {part: log.read(*part).to_pylist() for part in PARTS} == before
    assert [len(log.data_files(*part)) for part in [*PARTS, ("meta", META_PARTITION)]] == [1, 1, 1, 1, 1]
    assert reopened(log)._snapshot.files == log._snapshot.files


def test_files_of_a_failed_attempt_are_deleted(log: OperatorLog) -> None:
    failed = meta(log, 1)
    files(log, failed, {("state", 0): rows("x"), ("late", 1): rows("y")})
    assert delete_attempt(log.lake, log.format, failed.batch, failed.attempt, [0, 1]) == 2
    assert list(log.place.folder.glob("kind=*/*/*")) == []
