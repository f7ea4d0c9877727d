"""What drivers do so that a table and its readers wait for each other."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.test_pins import PLAN, READER
from tidegate.contracts.event_time import ALWAYS, NEVER
from tidegate.contracts.schema import Counts
from tidegate.runtime.batch_loop.alignment import MOST_WAITING_BYTES, Gates, Readers
from tidegate.runtime.task.messages import Hold, PartitionResult
from tidegate.state import leases
from tidegate.state.alignment import Lease

pytestmark = pytest.mark.fast

AT_100 = replace(READER, stream_time={0: 100}, totals={0: Counts(held=1)})
RESULT = PartitionResult(
    partition=0, action="batch", next_offset=0, stream_time=100, counts=Counts(), measures={}, files=(), producer=None
)


def waiting(records: int, size: int) -> PartitionResult:
    """What a batch has done that left so much waiting for the table."""
    return replace(RESULT, measures={"waiting_records_now": records, "waiting_bytes_now": size})


def test_with_64_mib_waiting_no_more_of_the_stream_is_read_in_that_partition() -> None:
    gates = Gates(grace=10, wait=None)
    gates.note_used(waiting(1, MOST_WAITING_BYTES - 1), NEVER, 0)
    assert gates.full() == set()
    gates.note_used(waiting(2, MOST_WAITING_BYTES), NEVER, 0)
    assert (gates.full(), gates.waiting()) == ({0}, [0])


def test_a_table_that_is_quiet_and_has_caught_up_holds_nobody_up() -> None:
    gates = Gates(grace=10, wait=None)
    gates.note_ends(AT_100, {0: 7})
    assert gates.open_until(PLAN, 7) == ALWAYS


def test_what_an_idle_advance_makes_due_waits_for_an_end_that_is_read_after_it() -> None:
    #  T 100, grace 10: 90 is due before the table's topic ended at 7; an advance to 200 makes 190 due afterwards
    gates, idle = Gates(grace=10, wait=None), replace(PLAN, action="idle")
    gates.note_ends(AT_100, {0: 7})
    assert gates.open_until(idle, 7) == 90
    gates.note_used(replace(RESULT, action="idle", stream_time=200), 90, 0)
    assert gates.passed(0, 7) == 90
    gates.note_ends(replace(AT_100, stream_time={0: 200}), {0: 7})
    assert gates.passed(0, 7) == 190


def test_nothing_is_settled_before_a_batch_has_shown_what_waits() -> None:
    gates = Gates(grace=10, wait=None)
    assert not gates.nothing_waits(AT_100)
    gates.note_used(waiting(1, 1), NEVER, 0)
    assert not gates.nothing_waits(AT_100)
    gates.note_used(waiting(0, 0), ALWAYS, 0)
    assert gates.nothing_waits(AT_100)


def test_a_table_holds_what_its_readers_say_and_its_floor_is_where_it_was(tmp_path: Path) -> None:
    leases.write(tmp_path, "join", Lease(3, 1_000, {0: 40}))
    table = Readers(table="facts", log=tmp_path, rewind_window_ms=0)
    assert table.held(replace(READER, floor={0: 15}), [0], 1_000) == ({"join": (3, 1_000)}, {0: Hold(15, 40)})


def test_a_reader_that_is_away_for_too_long_no_longer_counts_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leases.write(tmp_path, "join", Lease(3, 0, {0: 40}))
    table = Readers(table="facts", log=tmp_path, rewind_window_ms=7_200_000)
    with caplog.at_level(logging.WARNING, "tidegate"):
        for _ in range(2):
            assert table.held(READER, [0], 7_200_001) == ({}, {0: Hold(NEVER, ALWAYS)})
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "facts no longer waits for its reader join"
    ]


def test_what_is_given_up_although_a_reader_needs_it_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, plan = Readers(table="facts", log=tmp_path, rewind_window_ms=0), replace(PLAN, hold=Hold(10, 40))
    with caplog.at_level(logging.WARNING, "tidegate"):
        table.log_dropped_versions([plan], [replace(RESULT, floor=40)], 5)
        assert caplog.records == []
        table.log_dropped_versions([plan], [replace(RESULT, floor=41)], 6)
    [record] = caplog.records
    assert "versions before 41 ms were dropped" in record.getMessage()
