"""The rules of the operator's README, each by an example."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.errors import BufferFull
from tidegate.operators.deduplicate import Deduplicate, DeduplicateRules
from tidegate.operators.testing.driver import Driver

pytestmark = pytest.mark.fast


def driver(**rules: Any) -> Driver:
    """A driver under these rules."""
    return Driver(Deduplicate(DeduplicateRules(**rules)))


def emitted(tested: Driver, *records: tuple[str, int]) -> list[int]:
    """The timestamps of the records that are emitted."""
    return [emission.timestamp for key, timestamp in records for emission in tested.pipe(key, "v", timestamp)]


def test_a_duplicate_is_not_emitted() -> None:
    # time   0   5
    # A      *   .
    assert emitted(driver(within="10ms", grace="5ms"), ("A", 0), ("A", 5)) == [0]


def test_records_of_a_key_that_are_within_apart_are_both_emitted() -> None:
    # time   0   9  10
    # A      *   .   *
    assert emitted(driver(within="10ms", grace="5ms"), ("A", 0), ("A", 9), ("A", 10)) == [0, 10]


def test_a_record_beyond_the_grace_is_late_even_if_its_key_is_new() -> None:
    # time   0  14  15  20     T = 20
    # A                  *
    # B              *
    # C         late
    tested = driver(within="10ms", grace="5ms")
    assert emitted(tested, ("A", 20), ("B", 15), ("C", 14)) == [20, 15]
    assert [row["timestamp"] for row in tested.late] == [14]


def test_a_late_record_does_not_move_stream_time_and_is_not_remembered() -> None:
    tested = driver(within="10ms", grace="5ms")
    emitted(tested, ("A", 20), ("C", 14))
    assert (tested.stream_time, [row["key"] for row in tested.held()]) == (20, [b"A"])


def test_a_first_record_is_remembered_until_no_duplicate_of_it_is_accepted() -> None:
    # time   0   9        19      T = 19, grace to 9
    # A      *   .
    # B                    *
    tested = driver(within="10ms", grace="10ms")
    assert emitted(tested, ("A", 0), ("B", 19), ("A", 9)) == [0, 19]
    assert [row["timestamp"] for row in tested.held()] == [0, 19]


def test_a_first_record_is_forgotten_once_all_its_duplicates_would_be_late() -> None:
    tested = driver(within="10ms", grace="10ms")
    emitted(tested, ("A", 0), ("B", 20))
    assert [row["timestamp"] for row in tested.held()] == [20]


@pytest.mark.parametrize("bound", [{"max_keys": 1}, {"max_bytes": 1}])
def test_it_stops_before_the_key_that_would_exceed_a_bound(bound: dict[str, Any]) -> None:
    tested = driver(within="forever", buffer=bound | {"when_full": "shut_down"})
    assert emitted(tested, ("A", 0), ("A", 1)) == [0]
    with pytest.raises(BufferFull):
        tested.pipe("B", "v", 2)


@pytest.mark.parametrize("bound", [{"max_keys": 1}, {"max_bytes": 1}])
def test_what_a_record_lets_expire_makes_room_for_it(bound: dict[str, Any]) -> None:
    tested = driver(within="10ms", grace="5ms", buffer=bound | {"when_full": "shut_down"})
    assert emitted(tested, ("A", 0), ("B", 15)) == [0, 15]
