"""Why an operator makes no progress: one test per rule, on facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.runtime.kafka.open_transactions import OpenTransaction
from tidegate.runtime.telemetry.driver_status import DriverStatus, State
from tidegate.runtime.telemetry.explanation import (
    Explanation,
    OperatorFacts,
    PartitionFacts,
    explain_operator,
    explain_partition,
)

pytestmark = pytest.mark.fast

RUNNING = Explanation("running", "")
CAUGHT_UP = PartitionFacts(next_offset=10, first=0, stable=10, end=10)


def operator(state: State | None, *, driven: bool, kafka_error: str = "", lake_error: str = "") -> Explanation:
    status = None if state is None else DriverStatus(state=state, since=1, why="because")
    return explain_operator(OperatorFacts(driven=driven, status=status, kafka_error=kafka_error, lake_error=lake_error))


@pytest.mark.parametrize("state", ["bound reached", "fenced", "refused", "stopped"])
def test_the_reason_of_a_stopped_driver_is_shown_even_if_the_broker_is_unavailable(state: State) -> None:
    assert operator(state, driven=False, kafka_error="no broker") == (state, "because")


@pytest.mark.parametrize(
    ("state", "rule"), [("refused", "refused"), ("running", "lake away"), ("drained", "lake away"), (None, "lake away")]
)
def test_while_the_lake_is_away_only_a_driver_that_has_told_why_it_stopped_counts_as_ended(
    state: State | None, rule: str
) -> None:
    assert operator(state, driven=False, lake_error="no answer").rule == rule


@pytest.mark.parametrize("state", ["drained", None])
def test_if_no_driver_runs_the_command_that_starts_one_is_named(state: State | None) -> None:
    driver_status = operator(state, driven=False)
    assert driver_status.rule == "no driver"
    assert "tidegate run" in driver_status.text


@pytest.mark.parametrize("state", ["running", "waiting", "starting"])
def test_a_driver_without_a_reason_for_its_end_was_killed(state: State) -> None:
    driver_status = operator(state, driven=False)
    assert driver_status.rule == "no driver"
    assert f"killed while {state}" in driver_status.text


def test_an_unavailable_broker_is_explained_before_other_reasons_of_a_running_driver() -> None:
    assert operator("waiting", driven=True, kafka_error="no broker answers").rule == "broker away"
    assert operator("waiting", driven=True) == ("waiting", "because")


def test_a_driver_without_problems_is_starting_or_running() -> None:
    assert operator("starting", driven=True).rule == "starting"
    assert operator(None, driven=True).rule == "starting"
    assert operator("running", driven=True).rule == "running"


def test_a_fully_read_topic_gives_no_input() -> None:
    assert explain_partition(RUNNING, CAUGHT_UP).rule == "no input"


def test_without_offsets_from_a_broker_there_is_no_explanation() -> None:
    assert explain_partition(RUNNING, PartitionFacts(next_offset=10)).rule == "unknown"


def test_records_deleted_unread_are_reported_with_the_remedy() -> None:
    driver_status = explain_partition(RUNNING, replace(CAUGHT_UP, first=14, stable=20, end=20))
    assert driver_status == ("records lost", "offsets 10 to 13 were deleted before they were read: tidegate skip")


def test_a_topic_that_ends_before_the_next_offset_has_lost_records() -> None:
    assert explain_partition(RUNNING, replace(CAUGHT_UP, stable=7, end=9)).rule == "topic cut"


def test_unconfirmed_output_is_resolved_before_the_next_batch() -> None:
    assert explain_partition(RUNNING, replace(CAUGHT_UP, stable=20, end=20, unclear=True)).rule == "publication unclear"


def test_unread_records_are_explained_by_whether_a_driver_runs() -> None:
    behind = replace(CAUGHT_UP, stable=15, end=15)
    assert explain_partition(RUNNING, behind) == ("behind", "5 offsets to read")
    assert explain_partition(Explanation("fenced", ""), behind) == ("held up", "5 offsets to read; fenced")


def test_an_open_transaction_is_named_by_id_when_everything_before_it_is_read() -> None:
    blocked = replace(CAUGHT_UP, end=12, open_transactions=[
        OpenTransaction(producer_id=7, first_offset=10, transactional_id="shop"),
    ])  # fmt: skip
    driver_status = explain_partition(RUNNING, blocked)
    assert driver_status.rule == "open transaction"
    assert "'shop' (producer id 7), open since offset 10" in driver_status.text
    unnamed = explain_partition(RUNNING, replace(blocked, open_transactions=()))
    assert "open at offset 10" in unnamed.text


def test_records_before_an_open_transaction_are_read_first() -> None:
    assert explain_partition(RUNNING, replace(CAUGHT_UP, stable=12, end=15)).rule == "behind"


def test_a_join_with_waiting_due_records_names_the_table() -> None:
    status = DriverStatus(state="running", since=1, waits="for facts")
    assert explain_operator(OperatorFacts(driven=True, status=status)) == ("waiting for table", "for facts")
    behind = explain_partition(Explanation("waiting for table", ""), replace(CAUGHT_UP, stable=12, end=12))
    assert behind.rule == "behind"
