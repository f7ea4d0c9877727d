"""Windows are part of the key: one window's record is never taken for another's, and none is overwritten unasked."""

from __future__ import annotations

import pytest

from tests.operators.windowed import of_window
from tidegate.contracts.records import Records
from tidegate.kernels.storage import MemoryStorage
from tidegate.operators.suppression import Suppression, SuppressionConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig

pytestmark = pytest.mark.fast

FIRST, SECOND = (0, 10), (10, 20)
UPDATES = Records.from_rows([of_window(b"a", b"1", 8, FIRST, 0), of_window(b"a", b"2", 11, SECOND, 1)])
UNTOLD = "its key is of a window; write windows: headers, or windows: ignore to leave windows out of keys"


def suppression(**given):
    """An empty partition of a suppression."""
    operator = Suppression(SuppressionConfig.model_validate({"input": "in", "until": {"time_limit": "5ms"}} | given))
    return operator.open(MemoryStorage(operator.layout))


def table(**given):
    """An empty partition of a table."""
    operator = TableHistory(TableHistoryConfig.model_validate({"input": "in", "history_retention": "1h"} | given))
    return operator.open(MemoryStorage(operator.layout))


@pytest.mark.parametrize("opened", [suppression, table])
def test_records_of_windows_are_rejected_with_the_remedy_where_nobody_spoke_of_windows(opened) -> None:
    result = opened().step(UPDATES, 0)
    assert [row["cause"] for row in result.rejected.to_pylist()] == [UNTOLD, UNTOLD]
    assert (result.counts.rejected, result.counts.superseded, result.counts.held) == (2, 0, 0)


def test_a_time_limit_holds_every_window_of_a_key_and_counts_from_the_window_s_end() -> None:
    #  T:      8     11    14    15          24  25
    #  a:   [0,10) [10,20)        [0,10) out      [10,20) out
    state = suppression(windows="headers")
    assert state.step(UPDATES, 0).emissions.num_rows == 0
    assert state.advance(14).emissions.num_rows == 0
    (first,) = state.advance(15).emissions.to_pylist()
    assert (first["key"], first["value"], first["window_start"], first["window_end"]) == (b"a", b"1", 0, 10)
    assert state.advance(24).emissions.num_rows == 0
    (second,) = state.advance(25).emissions.to_pylist()
    assert (second["value"], second["window_start"], second["window_end"]) == (b"2", 10, 20)


def test_first_update_counts_from_the_first_held_timestamp_as_kafka_streams_does() -> None:
    state = suppression(windows="headers", timer="first_update")
    assert [row["value"] for row in state.step(UPDATES, 0).emissions.to_pylist()] == []
    assert [row["value"] for row in state.advance(13).emissions.to_pylist()] == [b"1"]
    assert [row["value"] for row in state.advance(16).emissions.to_pylist()] == [b"2"]


def test_a_full_buffer_counts_windows_not_keys() -> None:
    state = suppression(windows="headers", until=None, buffer={"max_keys": 1, "when_full": "emit"})
    result = state.step(UPDATES, 0)
    assert [(row["value"], row["window_start"]) for row in result.emissions.to_pylist()] == [(b"1", 0)]
    assert result.counts.held == 1


def test_a_history_keeps_every_window_s_versions_apart() -> None:
    state = table(windows="headers")
    same_time = [of_window(b"a", b"%d" % at, 8, window, at) for at, window in enumerate((FIRST, SECOND))]
    result = state.step(Records.from_rows(same_time), 0)
    assert (result.counts.applied, result.counts.superseded, result.counts.held) == (2, 0, 2)
    assert [(row["value"], row["window_start"], row["window_end"]) for row in state.snapshot().to_pylist()] == [
        (b"0", 0, 10),
        (b"1", 10, 20),
    ]


def test_ignore_means_that_a_later_window_replaces_an_earlier_one() -> None:
    result = suppression(windows="ignore", until={"time_limit": "1h"}).step(UPDATES, 0)
    assert (result.counts.superseded, result.counts.held) == (1, 1)
