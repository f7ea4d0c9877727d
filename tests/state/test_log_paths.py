"""A path in a log entry stays inside the table; otherwise every reader refuses the entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lakes import entry_path
from tests.state.logs import HOUR_MS, clock_of, commit_rows, new_log, reopened, rows
from tidegate.contracts.errors import StateError
from tidegate.state.delta_log.checkpoints import write_checkpoint
from tidegate.state.delta_log.log_entries import put_entry
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep.cleanup import clean_up

pytestmark = pytest.mark.fast

LEAVES_THE_TABLE = (
    "../victim.parquet",
    "kind=state/../../victim.parquet",
    "kind=state/..",
    "/victim.parquet",
    "//host/victim.parquet",
    "file:///victim.parquet",
    "s3://bucket/victim.parquet",
    "%2e%2e/victim.parquet",
    "..%2Fvictim.parquet",
    "kind=state\\..\\..\\victim.parquet",
    "kind=state/./victim.parquet",
    "kind=state//victim.parquet",
    "kind=state/partition=0/victim\n.parquet",
    "",
    "_delta_log/00000000000000000000.json",
    "kind=state/.hidden.parquet",
)
STAYS = (
    "kind=state/partition=0/1-a-0.parquet",
    "kind=meta/partition=-1/part-00000-5e3a2f1c-8d1b-4c6e-9f7a-2b4d6e8f0a1c.c000.zstd.parquet",
    "aB/part-00001-5e3a2f1c-8d1b-4c6e-9f7a-2b4d6e8f0a1c.c000.snappy.parquet",
)


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / "tally")


def removal(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": False, "deletionTimestamp": 0}}


def addition(path: str) -> dict[str, Any]:
    values = {"kind": "state", "partition": "0"}
    fields = {"path": path, "partitionValues": values, "size": 1, "modificationTime": 0, "dataChange": False}
    return {"add": fields}


@pytest.mark.parametrize("path", LEAVES_THE_TABLE)
@pytest.mark.parametrize("action", [removal, addition])
def test_an_entry_with_a_path_that_leaves_the_table_stops_the_driver_and_every_start(
    log: OperatorLog, path: str, action: Any
) -> None:
    commit_rows(log, 1, {("state", 0): rows("a")})
    put_entry(log.lake, 2, [action(path)])
    for work in (lambda: commit_rows(log, 2, {}), lambda: reopened(log), lambda: LogVersion.at(log.lake, 2)):
        with pytest.raises(StateError, match="leaves the table") as refused:
            work()
        assert entry_path(log.lake, 2).name in str(refused.value)
        assert refused.value.remedy


@pytest.mark.parametrize("path", STAYS)
def test_paths_of_delta_writers_are_accepted(log: OperatorLog, path: str) -> None:
    commit_rows(log, 1, {})
    put_entry(log.lake, 2, [addition(path)])
    commit_rows(log, 2, {})
    assert reopened(log).has_file(path)


def test_a_checkpoint_with_a_path_that_leaves_the_table_is_refused(log: OperatorLog) -> None:
    commit_rows(log, 1, {})
    write_checkpoint(log.lake, 1, [*log._snapshot.actions(), addition("../victim.parquet")])
    with pytest.raises(StateError, match="leaves the table"):
        reopened(log)


def test_a_clean_up_deletes_nothing_outside_of_the_table(log: OperatorLog) -> None:
    """remove ../victim --- put 1, with a checkpoint behind the window --- clean-up"""
    victim = log.place.folder.parent / "victim.parquet"
    victim.write_text("not ours")
    commit_rows(log, 1, {})
    entry_path(log.lake, 1).rename(entry_path(log.lake, 2))
    put_entry(log.lake, 1, [removal("../victim.parquet")])
    write_checkpoint(log.lake, 2, log._snapshot.actions())
    with pytest.raises(StateError, match="leaves the table"):
        clean_up(LogVersion.at(log.lake, 2), clock_ms=clock_of(1) + 9 * HOUR_MS, rewind_window_ms=0)
    assert victim.exists()
