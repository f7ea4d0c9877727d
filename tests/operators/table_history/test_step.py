"""The rules of a table, one by one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.operators.table_history.partitions import changed, held, opened, records
from tidegate.contracts.event_time import NEVER
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.table_history.reading import Version
from tidegate.operators.table_history.state import LAYOUT
from tidegate.operators.testing.driver import Driver

pytestmark = pytest.mark.fast


def test_a_version_expires_when_its_successor_is_as_old_as_the_retention() -> None:
    #  retention 10   a: 1   5        T: 14 -> 5 is inside   T: 15 -> 5 is the oldest readable time: 1 is gone
    state = opened()
    state.step(records(("a", "1", 1), ("a", "2", 5), ("b", "x", 14)), 0)
    assert held(state) == [(b"a", b"1", 1), (b"a", b"2", 5), (b"b", b"x", 14)]
    result = state.step(records(("b", "y", 15), first=3), 0)
    assert changed(result) == [("put", b"b", 15), ("delete", b"a", 1)]
    assert result.measures["expired"] == 1
    assert state.get(b"a", 5) == Version(b"2", 5, None)


def test_a_version_that_expires_in_its_own_batch_is_not_in_the_changelog() -> None:
    state = opened()
    result = state.step(records(("a", "1", 1), ("a", "2", 2), ("a", "3", 100)), 0)
    assert changed(result) == [("put", b"a", 2), ("put", b"a", 100)]
    assert result.counts.applied == 3
    assert result.counts.held == 2


def test_expired_versions_are_listed_in_order_of_arrival() -> None:
    state = opened()
    state.step(records(("b", "1", 3), ("a", "1", 1), ("a", "2", 4), ("b", "2", 4)), 0)
    assert changed(state.step(records(("c", "x", 50), first=4), 0)) == [
        ("put", b"c", 50),
        ("delete", b"b", 3),
        ("delete", b"a", 1),
    ]


def test_the_newest_version_of_a_key_is_kept_even_if_it_is_a_tombstone() -> None:
    state = opened()
    state.step(records(("a", "1", 1), ("a", None, 2), ("b", "x", 1_000)), 0)
    assert held(state) == [(b"a", None, 2), (b"b", b"x", 1_000)]
    state.step(records(("b", "y", 10_000), first=3), 0)
    assert held(state)[0] == (b"a", None, 2)


def test_a_tombstone_at_the_time_of_a_put_replaces_it_and_is_superseded_by_the_next() -> None:
    state = opened()
    result = state.step(records(("a", "1", 5), ("a", None, 5), ("a", "2", 5), ("a", None, 5)), 0)
    assert (result.counts.applied, result.counts.superseded) == (1, 3)
    assert changed(result) == [("put", b"a", 5)]
    assert state.get(b"a") is None


def test_a_record_older_than_the_retention_is_late_and_moves_nothing() -> None:
    state = opened()
    result = state.step(records(("a", "1", 20), ("a", "0", 9), ("a", "at", 10)), 0)
    [late] = result.late.to_pylist()
    assert (late["timestamp"], late["lateness"], late["bound"]) == (9, 11, 10)
    assert late["cause"] == "older than history_retention"
    assert (result.counts.applied, result.counts.late, result.stream_time) == (2, 1, 20)


def test_an_idle_advance_expires_versions_and_emits_nothing() -> None:
    state = opened()
    state.step(records(("a", "1", 1), ("a", "2", 5)), 0)
    result = state.advance(15)
    assert changed(result) == [("delete", b"a", 1)]
    assert result.emissions.num_rows == 0
    assert state.flush().changes.num_rows == 0


def test_a_table_of_latest_values_orders_by_offset_and_has_no_late_records() -> None:
    state = opened(versions="latest")
    result = state.step(records(("a", "1", 1_000), ("a", "2", 5), ("b", "x", 1), ("b", None, 7)), 0)
    assert held(state) == [(b"a", b"2", 5), (b"b", None, 7)]
    assert state.get(b"a", 0) == Version(b"2", 5, None)
    assert result.counts.late == 0
    assert result.stream_time == 1_000
    assert changed(result) == [("put", b"a", 5), ("put", b"b", 7)]
    assert TableHistory(TableHistoryConfig(input="records", versions="latest")).slot == ("key",)


def test_a_shorter_retention_drops_versions_with_the_next_record() -> None:
    storage = MemoryStorage(LAYOUT)
    opened(storage, history_retention="100ms").step(records(("a", "1", 1), ("a", "2", 50), ("a", "3", 90)), 0)
    state = opened(storage, history_retention="10ms")
    assert state.get(b"a", 60) is None
    assert changed(state.step(records(("b", "x", 100), first=3), 0)) == [
        ("put", b"b", 100),
        ("delete", b"a", 1),
        ("delete", b"a", 50),
    ]


def test_a_longer_retention_accepts_older_writes_and_restores_no_version() -> None:
    #  retention 10, T 100: of a only 90 is left   then retention 60: 45 may be written   T 200: and has expired
    storage = MemoryStorage(LAYOUT)
    opened(storage).step(records(("a", "1", 1), ("a", "2", 50), ("a", "3", 90), ("b", "x", 100)), 0)
    state = opened(storage, history_retention="60ms")
    state.step(records(("a", "old", 45), first=4), 0)
    assert state.get_range(b"a") == [Version(b"3", 90, None), Version(b"old", 45, 90)]
    assert changed(state.step(records(("c", "y", 200), first=5), 0)) == [("put", b"c", 200), ("delete", b"a", 45)]


def test_a_changelog_with_deletes_restores_an_equal_state_and_may_delete_missing_slots() -> None:
    state, twin = opened(), opened()
    results = [
        state.step(records(*rows, first=first), 0)
        for first, rows in (
            (0, [("a", "1", 1), ("a", "2", 5), ("b", "x", 5)]),
            (3, [("b", "y", 30), ("c", None, 25)]),
        )
    ]
    for result in (*results, results[1]):
        twin.restore(result.changes, result.stream_time)
    assert twin.snapshot() == state.snapshot()
    assert twin.get(b"a", 24) == state.get(b"a", 24) == Version(b"2", 5, None)
    assert twin.stream_time == 30


def test_a_key_whose_versions_were_all_deleted_can_be_written_again() -> None:
    state = opened()
    puts = opened().step(records(*((f"a longer key {n}", "x", n % 7) for n in range(50))), 0).changes
    deletes = puts.set_column(0, "op", [["delete"] * puts.num_rows])
    for _ in range(3):
        state.restore(puts, 6)
        assert state.get(b"a longer key 3") == Version(b"x", 3, None)
        state.restore(deletes, 6)
        assert held(state) == []
    assert state.flush().measures["keys_now"] == 0


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_a_key_can_have_100_000_versions(order: str) -> None:
    count = 100_000
    times = np.arange(count)
    if order == "descending":
        times = times[::-1]
    elif order == "random":
        times = np.random.default_rng(1).permutation(times)
    state = opened(history_retention="1d")
    for first in range(0, count, 10_000):
        rows = [("a key", str(time), int(time)) for time in times[first : first + 10_000]]
        assert state.step(records(*rows, first=first), 0).counts.applied == 10_000
    assert [state.get(b"a key", time).value for time in (0, 77_777, count)] == [b"0", b"77777", b"99999"]
    assert [version.value for version in state.get_range(b"a key", 5, 7)] == [b"7", b"6", b"5"]
    state.advance(count + 86_400_000 - 10)
    assert state.flush().counts.held == 10


def test_the_driver_s_state_answers_lookups_of_versions() -> None:
    #  KIP-923's table   1: a b c   2: a x c   3: a x y
    driver = Driver(TableHistory(TableHistoryConfig(input="table", history_retention="10ms")))
    for timestamp, row in ((1, "abc"), (2, "axc"), (3, "axy")):
        for key, value in zip("123", row, strict=True):
            assert driver.pipe(key, value, timestamp) == []
    assert [driver.state.get(key, 1).value for key in (b"1", b"2", b"3")] == [b"a", b"b", b"c"]
    assert [driver.state.get(key, 2).value for key in (b"1", b"2", b"3")] == [b"a", b"x", b"c"]
    assert driver.state.get_range(b"3", ascending=True) == [
        Version(b"c", 1, 2),
        Version(b"c", 2, 3),
        Version(b"y", 3, None),
    ]


def test_versions_that_a_reader_needs_are_kept_until_it_has_moved_on() -> None:
    #  versions of 0, 10, 20, 30; retention 5: alone the table would keep those from 25 on
    lines = records(*(("k", str(at), at) for at in (0, 10, 20, 30)))
    state = opened(history_retention="5ms")
    state.hold(NEVER, 12)
    result = state.step(lines, 0)
    assert (result.floor, result.counts.held, result.measures["given_up"]) == (12, 3, 0)
    assert [version and version.valid_from for version in map(partial(state.get, b"k"), (11, 12, 29))] == [None, 10, 20]
    state.hold(12, 22)
    assert [row["timestamp"] for row in state.step(records(), 0).changes.to_pylist()] == [10]
    state.hold(22, 5)
    assert state.step(records(), 0).floor == 22, "what has gone does not come back"


def test_more_than_hold_for_readers_is_given_up_and_counted() -> None:
    #  a version has 3 bytes; three are held for a reader, behind the newest, which stays whatever happens
    lines = records(*(("k", f"{at:02}", at) for at in (0, 10, 20, 30)))
    for bound, floor, given_up in ((9, 0, 0), (8, 30, 3)):
        state = opened(history_retention=0, hold_for_readers=bound)
        state.hold(NEVER, 0)
        result = state.step(lines, 0)
        assert (result.floor, result.measures["given_up"]) == (floor, given_up)
