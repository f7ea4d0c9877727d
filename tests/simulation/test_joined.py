"""The versions of a table's log, as the table's oracle knows them."""

from __future__ import annotations

import pytest

from tests.metadata import described, small_meta
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.base import read
from tidegate.contracts.records import Row
from tidegate.operators.registry import operator_for
from tidegate.operators.stream_table_join import StreamTableJoinConfig
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.operators.testing.laws import Partition
from tidegate.testing.simulation.judges.joined import JoinOracle, TableOracle
from tidegate.testing.simulation.judges.oracle import Violation, sorted_rows
from tidegate.testing.simulation.settings import INPUT, JOINED, OPERATORS, TABLE

pytestmark = pytest.mark.fast

CONFIG = read(TableHistoryConfig, {"kind": "table_history", "input": TABLE, "history_retention": "35ms"})
JOIN = read(StreamTableJoinConfig, {"input": INPUT, "output": "joined", **OPERATORS[JOINED]})
CLAIM = small_meta(operator=TABLE, batch=0, action="claim", config="", input=TABLE, next_offset={0: 0})
ROW = Row(b"k", b"v", 5, 0, b"")
CLAIMED, NEWEST = 1, 2
"""The versions of the log that have the claim, and the one batch above it."""


@pytest.fixture
def table() -> TableOracle:
    """That of a table with one version of one key."""
    oracle = TableOracle(CONFIG, 1)
    JoinOracle(JOIN, {TABLE: oracle}, 1)
    oracle.inputs[0][0] = ROW
    oracle.committed(CLAIM, {0: 1}, CLAIMED)
    oracle.committed(batch_of(ROW), {0: 1}, NEWEST)
    return oracle


def batch_of(row: Row) -> BatchMeta:
    """The table's batch with that record."""
    result = Partition(operator_for(CONFIG), 0).play([row])
    said = {"counts": {0: result.counts}, "stream_time": {0: result.stream_time}, "floor": {0: -30}}
    return described(CLAIM, batch=1, action="batch", next_offset={0: 1}, **said)


def test_each_version_of_the_log_has_the_state_of_its_batch(table: TableOracle) -> None:
    held = [table.state_at(version, 0).snapshot().num_rows for version in (CLAIMED, NEWEST)]
    assert held == [0, 1]


def test_a_foreign_version_has_the_state_of_the_batch_below_it(table: TableOracle) -> None:
    for version in (NEWEST + 1, NEWEST + 2):
        table.note_foreign_version(version)
    before, after = (table.state_at(version, 0) for version in (NEWEST, NEWEST + 2))
    rows = [sorted_rows(state.snapshot(), ["key", "value", "timestamp"]) for state in (before, after)]
    assert rows == [[(b"k", b"v", 5)]] * 2
    assert before.stream_time == after.stream_time == 5


def test_no_join_reads_a_version_that_was_not_committed(table: TableOracle) -> None:
    with pytest.raises(Violation, match="version 3"):
        table.state_at(NEWEST + 1, 0)
