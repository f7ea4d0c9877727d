"""A row that stands for a record batch that cannot be read is rejected, with the cause, by every operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.records import TOO_LARGE, UNREADABLE, Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.testing.cases import Case, cases

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module", params=cases())
def case(request: pytest.FixtureRequest) -> Case:
    """What is known of the operator."""
    return cases()[request.param]


def test_an_unreadable_record_batch_is_rejected_and_the_other_records_are_processed(case: Case) -> None:
    rows = [Row(b"a", b'{"n": 1}', 5, 10), Row(b"", b'{"first_offset":11}', 6, 11), Row(b"a", b'{"n": 2}', 7, 90)]
    records = replace(Records.from_rows(rows), unreadable=np.array([0, TOO_LARGE, 0], np.int8))
    result = opened(case.holding).step(records, 0)
    assert [(row["offset"], row["cause"], row["value"]) for row in result.rejected.to_pylist()] == [
        (11, UNREADABLE[TOO_LARGE - 1], b'{"first_offset":11}')
    ]
    assert (result.counts.records_in, result.counts.rejected, result.counts.balanced) == (3, 1, True)
    assert result.stream_time == 7


def opened(config: OperatorConfig):
    """Open a state of the operator, with an empty table where it reads one."""
    operator = operator_for(config)
    state = operator.open(MemoryStorage(operator.layout))
    if config.reads():
        table = TableHistory(TableHistoryConfig.model_validate({"input": "t", "history_retention": "1h"}))
        state.read_table(table.open(MemoryStorage(table.layout)))
    return state
