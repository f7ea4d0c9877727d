"""A log that was written in format 1, `format_1.tar.xz`, is read, and goes on in format 2.

Its 21 batches were written by the last release of that format: 0 is a claim, 12 a compaction, the others touched
partition batch % 2; checkpoints are at versions 8 and 16, and nothing was cleaned up.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.lakes import lake_at
from tests.metadata import described
from tests.state.logs import OPERATOR, reopened
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.log_schema import PARTITIONED_FORMAT
from tidegate.runtime.batch_loop.next_metadata import after_claim, after_compaction
from tidegate.state import earlier_batches
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep.compaction import Kept, compact

pytestmark = pytest.mark.fast


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    with tarfile.open(Path(__file__).with_name("format_1.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return LogVersion.at(lake_at(tmp_path / OPERATOR), None)


def claimed(log: OperatorLog) -> tuple[OperatorLog, BatchMeta]:
    """The log as a new driver has it, and the metadata of its claim."""
    mine = reopened(log)
    newest = mine.newest()
    assert newest is not None
    claim = after_claim(newest, attempt="mine", clock=newest.clock + 1_000, config="first", topics={"in": "id"})
    mine.commit(claim, [])
    return mine, claim


def test_a_log_of_format_1_is_read(log: OperatorLog) -> None:
    newest = log.newest()
    assert newest is not None
    assert (newest.format, newest.batch, newest.next_offsets) == (1, 20, {0: 9, 1: 10})
    assert [meta.batch for meta in earlier_batches.metas(log)] == list(range(21))
    assert [meta.next_offsets for meta in earlier_batches.metas_of(log, range(5, 7))] == [{0: 2, 1: 3}, {0: 3, 1: 3}]
    assert earlier_batches.gapless_range(log) == range(21)
    assert earlier_batches.lineage(log, newest) == {
        0: [(batch, f"a{batch}") for batch in (14, 16, 18, 20)],
        1: [(batch, f"a{batch}") for batch in (13, 15, 17, 19)],
    }


def test_a_claim_upgrades_a_log_of_format_1(log: OperatorLog) -> None:
    before, state = earlier_batches.metas(log), log.read("state")
    mine, claim = claimed(log)
    batch = described(claim, batch=22, attempt="b", action="batch", next_offset={1: 11}, recovered={1: "new"})
    mine.commit(batch, [])
    for handle in (mine, reopened(mine), LogVersion.at(log.lake, None)):
        assert handle.newest() == batch
        assert earlier_batches.metas(handle) == [*before, claim, batch]
        assert earlier_batches.gapless_range(handle) == range(23)
        assert handle.read("state") == state
        assert handle.format == PARTITIONED_FORMAT, "its files lack columns that those of format 3 have"


def test_a_compaction_of_format_1_keeps_each_batch_s_metadata_exactly_once(log: OperatorLog) -> None:
    before = earlier_batches.metas(log)
    mine, claim = claimed(log)
    compaction = after_compaction(claim, [0, 1], attempt="c", clock=claim.clock + 1_000)
    compact(mine, compaction, Kept(slot=("key",)), rewind_window_ms=0)
    assert earlier_batches.metas(reopened(mine)) == [*before, claim, compaction]
    assert mine.batches("meta", -1) == list(range(22))
