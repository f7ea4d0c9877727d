"""Which versions a table keeps for its readers, and when a reader's records may be released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakes import lake_at
from tidegate.contracts.event_time import ALWAYS, NEVER
from tidegate.state import leases
from tidegate.state.alignment_decisions import (
    LONGEST_QUEUE,
    Gate,
    Lease,
    live_leases,
    needed,
    seen,
)

pytestmark = pytest.mark.fast

A, B = Lease(1, 1_000, {0: 50, 1: 70}), Lease(2, 1_000, {0: 60, 1: 40})


def test_a_table_keeps_the_versions_that_any_reader_needs() -> None:
    both = {"a": A, "b": B}
    assert [needed(both, seen({}, both), partition) for partition in (0, 1)] == [50, 40]
    assert needed({}, {}, 0) == ALWAYS


def test_all_versions_of_a_partition_that_a_reader_does_not_name_are_kept() -> None:
    assert needed({"a": A}, seen({}, {"a": A}), 9) == NEVER


def test_a_superseded_driver_s_lease_releases_no_version() -> None:
    epochs = seen({"a": (2, 900)}, {"a": A})
    assert epochs == {"a": (2, 900)}
    assert needed({"a": A}, epochs, 0) == NEVER


def test_a_lease_older_than_the_rewind_window_no_longer_counts() -> None:
    assert live_leases({"a": A, "b": B._replace(clock=999)}, 2_000, 1_000) == {"a": A}


def test_a_lease_round_trips_and_an_unreadable_lease_needs_everything(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    leases.write(lake, "a", A)
    lake.put(leases.key_of("b"), b"{")
    found = leases.read(lake, 77)
    assert found == {"a": A, "b": Lease(0, 77, {})}
    assert needed(found, seen({}, found), 0) == NEVER


def test_a_gate_opens_for_records_that_were_due_before_the_end_that_the_table_has_read() -> None:
    """due up to 10 when the table's topic ended at 3; up to 20 when it ended at 5; up to 30 at 9"""
    gate = Gate()
    for due, end in ((10, 3), (20, 5), (30, 9)):
        gate.add_due(due, (end,))
    assert [gate.released_up_to((offset,)) for offset in (0, 2, 3, 4, 5, 8, 9)] == [NEVER, NEVER, 10, 10, 20, 20, 30]


def test_of_equal_timestamps_the_first_entry_counts() -> None:
    gate = Gate()
    gate.add_due(10, (3,))
    gate.add_due(10, (7,))
    assert gate.released_up_to((3,)) == 10
    gate.add_due(10, (9,))
    assert gate.released_up_to((3,)) == 10


def test_a_gate_opens_when_each_topic_of_the_table_was_read_up_to_its_end() -> None:
    """due up to 10 when the table's topics ended at 3 and 4; up to 20 when they ended at 5 and 4"""
    gate = Gate()
    gate.add_due(10, (3, 4))
    gate.add_due(20, (5, 4))
    read = ((9, 3), (2, 9), (3, 4), (4, 9), (5, 9))
    assert [gate.released_up_to(offsets) for offsets in read] == [NEVER, NEVER, 10, 10, 20]


def test_a_gate_that_stays_closed_for_long_merges_entries_and_opens_no_earlier() -> None:
    gate = Gate()
    for number in range(5 * LONGEST_QUEUE):
        gate.add_due(number, (number,))
    assert len(gate._due) <= LONGEST_QUEUE
    for number in range(5 * LONGEST_QUEUE):
        assert gate.released_up_to((number,)) <= number
    assert gate.passed == 5 * LONGEST_QUEUE - 1
