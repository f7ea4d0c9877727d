"""Windows are part of the key: records of different windows are never mixed up or overwritten without configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.windowed import of_window
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_stream_join import StreamStreamJoin, StreamStreamJoinConfig
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.suppression import Suppression, SuppressionConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig

pytestmark = pytest.mark.fast

FIRST, SECOND = (0, 10), (10, 20)
UPDATES = Records.from_rows([of_window(b"a", b"1", 8, FIRST, 0), of_window(b"a", b"2", 11, SECOND, 1)])
UNEXPECTED_WINDOWS = "it names a window, but windows: none is configured; write windows: headers, or windows: ignore"


def suppression(**given):
    """An empty partition of a suppression."""
    operator = Suppression(SuppressionConfig.model_validate({"input": "in", "until": {"time_limit": "5ms"}} | given))
    return operator.open(MemoryStorage(operator.layout))


def table(**given):
    """An empty partition of a table."""
    operator = TableHistory(TableHistoryConfig.model_validate({"input": "in", "history_retention": "1h"} | given))
    return operator.open(MemoryStorage(operator.layout))


@pytest.mark.parametrize("opened", [suppression, table])
def test_windowed_records_are_rejected_with_the_remedy_if_windows_are_not_configured(opened) -> None:
    result = opened().step(UPDATES, 0)
    assert [row["cause"] for row in result.rejected.to_pylist()] == [UNEXPECTED_WINDOWS, UNEXPECTED_WINDOWS]
    assert (result.counts.rejected, result.counts.superseded, result.counts.held) == (2, 0, 0)


@pytest.mark.parametrize("join", ["left", "inner"])
def test_a_record_without_a_key_has_no_window_whatever_its_headers_name(join: str) -> None:
    #  in     null, in the window [0, 10)     a left join emits it alone, and an inner one needs a key
    config = {"input": "in", "right": "others", "join": join, "before": 0, "after": "5ms", "grace": 0}
    operator = StreamStreamJoin(StreamStreamJoinConfig.model_validate(config))
    unkeyed = of_window(b"a", b"1", 8, FIRST, 0)._replace(key=None)
    result = operator.open(MemoryStorage(operator.layout)).step(Records.from_rows([unkeyed]), 0)
    found = [row["cause"] for row in result.rejected.to_pylist()]
    assert (result.emissions.num_rows, found) == ((1, []) if join == "left" else (0, ["null key"]))


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


WINDOWS = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda bounds: (bounds[0], bounds[0] + bounds[1]))
KEYS = st.sampled_from([b"", b"a", bytes(8), bytes(16), (1).to_bytes(8, "little")])


@pytest.mark.parametrize("opened", [suppression, table])
@given(told=st.lists(st.tuples(KEYS, WINDOWS), max_size=30))
def test_no_two_windows_share_a_slot(opened, told) -> None:
    rows = [of_window(key, b"v", 5, window, at) for at, (key, window) in enumerate(told)]
    options = {"until": {"time_limit": "1h"}} if opened is suppression else {}
    state = opened(windows="headers", **options)
    state.step(Records.from_rows(rows), 0)
    held = [(row["key"], (row["window_start"], row["window_end"])) for row in state.snapshot().to_pylist()]
    assert sorted(held) == sorted(set(told))


def test_a_windowed_stream_is_joined_with_the_version_of_its_own_window() -> None:
    versions, operator = (
        table(windows="headers"),
        StreamTableJoin(
            StreamTableJoinConfig.model_validate({"input": "in", "table": "t", "join": "left", "windows": "headers"})
        ),
    )
    versions.step(Records.from_rows([of_window(b"a", b"1", 1, FIRST, 0), of_window(b"a", b"2", 1, SECOND, 1)]), 0)
    state = operator.open(MemoryStorage(operator.layout))
    state.read_table(versions)
    stream = [of_window(b"a", b"0", 5, window, at) for at, window in enumerate((SECOND, FIRST, (20, 30)))]
    emitted = state.step(Records.from_rows(stream), 0).emissions.to_pylist()
    assert [(row["key"], row["value"], row["window_start"]) for row in emitted] == [
        (b"a", b'{"stream":0,"table":2}', 10),
        (b"a", b'{"stream":0,"table":1}', 0),
        (b"a", b'{"stream":0,"table":null}', 20),
    ]


@pytest.mark.parametrize("join", ["inner", "left"])
def test_a_windowed_join_rejects_records_without_a_key(join) -> None:
    operator = StreamTableJoin(
        StreamTableJoinConfig.model_validate({"input": "in", "table": "t", "join": join, "windows": "headers"})
    )
    state = operator.open(MemoryStorage(operator.layout))
    state.read_table(table(windows="headers"))
    result = state.step(Records.from_rows([of_window(None, b"0", 5, FIRST)]), 0)
    assert [row["cause"] for row in result.rejected.to_pylist()] == ["null key"]


@pytest.mark.parametrize(
    ("windows", "key", "window"),
    [
        ({"time": "10ms"}, b"a" + (20).to_bytes(8, "big"), (20, 30)),
        ("session", b"a" + (29).to_bytes(8, "big") + (20).to_bytes(8, "big"), (20, 29)),
    ],
)
def test_late_and_rejected_records_keep_their_original_key(windows, key, window) -> None:
    state = suppression(windows=windows, max_lateness="1ms", until={"time_limit": "1h"})
    rows = [Row(key, b"1", 25, 0), Row(key, b"2", 20, 1), Row(b"short", b"3", 25, 2)]
    result = state.step(Records.from_rows(rows), 0)
    assert [row["key"] for row in result.late.to_pylist()] == [key]
    assert [(row["key"], row["cause"]) for row in result.rejected.to_pylist()] == [
        (b"short", "no window: its key is too short for Kafka's format of windowed keys")
    ]
    (held,) = state.snapshot().to_pylist()
    assert (held["key"], held["window_start"], held["window_end"]) == (b"a", *window)


def test_a_held_window_s_tombstone_is_emitted_because_a_result_may_have_been_emitted_before() -> None:
    state = suppression(windows="headers", until={"time_limit": 0})
    rows = [of_window(b"a", b"1", 10, FIRST, 0), of_window(b"a", None, 11, FIRST, 1)]
    assert [row["value"] for row in state.step(Records.from_rows(rows), 0).emissions.to_pylist()] == [b"1", None]
