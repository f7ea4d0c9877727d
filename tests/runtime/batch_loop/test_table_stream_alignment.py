"""What drivers do so that a table and its readers wait for each other."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lakes import lake_at
from tests.metadata import described
from tests.runtime.batch_loop.test_table_pin import PLAN, READER, RESULT
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.event_time import ALWAYS, NEVER, NO_STREAM_TIME
from tidegate.runtime.batch_loop.table_stream_alignment import MOST_WAITING_BYTES, Gates, Readers
from tidegate.runtime.task.messages import Hold, PartitionResult
from tidegate.state import leases
from tidegate.state.alignment_decisions import Lease

pytestmark = pytest.mark.fast

AT_100 = described(READER, last={0: (3, "a")}, stream_time={0: 100}, totals={0: Counts(held=1)})


def waiting(records: int, size: int) -> PartitionResult:
    """What a batch has done that left so much waiting for the table."""
    return replace(RESULT, measures={"waiting_records_now": records, "waiting_bytes_now": size})


def test_with_64_mib_waiting_a_partition_pauses_reading_the_stream() -> None:
    gates = Gates(read=TableRead("table", 10, None))
    gates.note_used(waiting(1, MOST_WAITING_BYTES - 1), NEVER, 0)
    assert gates.full() == set()
    gates.note_used(waiting(2, MOST_WAITING_BYTES), NEVER, 0)
    assert (gates.full(), gates.waiting()) == ({0}, [0])


def test_what_waits_in_a_step_of_a_pipeline_waits_for_the_table_of_that_step() -> None:
    measures = {"joined.waiting_records_now": 2, "joined.waiting_bytes_now": MOST_WAITING_BYTES}
    gates = [Gates(read=TableRead("table", 10, None, step)) for step in ("joined", "again")]
    for each in gates:
        each.note_used(replace(RESULT, measures=measures), NEVER, 0)
    assert [(each.waiting(), each.full()) for each in gates] == [([0], {0}), ([], set())]


def test_a_quiet_table_that_has_caught_up_delays_no_join() -> None:
    gates = Gates(read=TableRead("table", 10, None))
    gates.note_ends(AT_100, [{0: 7}])
    assert gates.open_until(PLAN, (7,)) == ALWAYS


def test_a_table_of_two_topics_has_caught_up_when_it_has_read_both() -> None:
    gates = Gates(read=TableRead("table", 10, None))
    gates.note_ends(AT_100, [{0: 7}, {0: 3}])
    assert [gates.open_until(PLAN, read) for read in ((9, 2), (6, 9), (7, 3))] == [NEVER, NEVER, ALWAYS]


def test_records_due_by_an_idle_advance_wait_for_a_later_end_of_the_table_s_topic() -> None:
    #  T 100, grace 10: 90 is due before the table's topic ended at 7; an advance to 200 makes 190 due afterwards
    gates, idle = Gates(read=TableRead("table", 10, None)), replace(PLAN, action="idle")
    gates.note_ends(AT_100, [{0: 7}])
    assert gates.open_until(idle, (7,)) == 90
    gates.note_used(replace(RESULT, action="idle", stream_time=200), 90, 0)
    assert gates.passed(0, (7,)) == 90
    gates.note_ends(described(AT_100, stream_time={0: 200}), [{0: 7}])
    assert gates.passed(0, (7,)) == 190


OF_STEP = TableRead("table", 10, 500, "joined", has_own_time=True)
STEP_AT_60 = replace(RESULT, reader_time={"table": 60}, measures={"joined.waiting_records_now": 1})


def test_the_gate_of_a_step_behind_others_follows_the_time_of_that_step() -> None:
    #  T of the pipeline 100, of its join 60, grace 10: no more than 50 was due when the table's topic ended at 7
    gates, known = Gates(read=OF_STEP), described(AT_100, reader_time={0: {"table": 60}})
    gates.note_ends(known, [{0: 7}])
    assert gates.passed(0, (7,)) == 50
    gates.note_used(replace(STEP_AT_60, reader_time={"table": 80}), 50, 0)
    assert gates.passed(0, (7,)) == 70
    assert Gates(read=OF_STEP).passed(0, (7,)) == NEVER


def test_a_step_that_no_record_has_reached_opens_no_gate() -> None:
    gates = Gates(read=OF_STEP)
    gates.note_ends(AT_100, [{0: 7}])
    assert gates.passed(0, (7,)) == NO_STREAM_TIME - 10


def test_the_wait_of_what_a_step_passed_on_without_input_begins_when_it_arrived() -> None:
    gates = Gates(read=OF_STEP)
    known = described(AT_100, active_clock={0: 1_000}, reader_time={0: {"table": 60}})
    gates.note_used(replace(STEP_AT_60, ledger={"joined": Counts()}), NEVER, 1_000)
    gates.note_used(replace(STEP_AT_60, ledger={"joined": Counts(records_in=1, applied=1)}), NEVER, 2_000)
    gates.note_used(replace(STEP_AT_60, ledger={"joined": Counts()}), NEVER, 2_100)
    assert not gates.should_retry(known, 0, (0,), 2_499)
    assert gates.should_retry(known, 0, (0,), 2_500)


def test_records_may_wait_until_a_batch_has_shown_that_none_does() -> None:
    gates = Gates(read=TableRead("table", 10, None))
    assert not gates.nothing_waits(AT_100)
    gates.note_used(waiting(1, 1), NEVER, 0)
    assert not gates.nothing_waits(AT_100)
    gates.note_used(waiting(0, 0), ALWAYS, 0)
    assert gates.nothing_waits(AT_100)


def test_a_table_s_hold_combines_its_floor_and_its_readers_leases(tmp_path: Path) -> None:
    leases.write(lake_at(tmp_path), "join", Lease(3, 1_000, {0: 40}))
    table = Readers(table="facts", log=lake_at(tmp_path), rewind_window_ms=0)
    assert table.held(described(READER, floor={0: 15}), [0], 1_000) == ({"join": (3, 1_000)}, {0: Hold(15, 40)})


def test_a_reader_absent_for_too_long_no_longer_counts_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leases.write(lake_at(tmp_path), "join", Lease(3, 0, {0: 40}))
    table = Readers(table="facts", log=lake_at(tmp_path), rewind_window_ms=7_200_000)
    with caplog.at_level(logging.WARNING, "tidegate"):
        for _ in range(2):
            assert table.held(READER, [0], 7_200_001) == ({}, {0: Hold(NEVER, ALWAYS)})
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "facts no longer waits for its reader join"
    ]


def test_dropping_versions_that_a_reader_needs_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, plan = Readers(table="facts", log=lake_at(tmp_path), rewind_window_ms=0), replace(PLAN, hold=Hold(10, 40))
    with caplog.at_level(logging.WARNING, "tidegate"):
        table.log_dropped_versions([plan], [replace(RESULT, floor=40)], 5)
        assert caplog.records == []
        table.log_dropped_versions([plan], [replace(RESULT, floor=41)], 6)
    [record] = caplog.records
    assert "versions before 41 ms were dropped" in record.getMessage()
