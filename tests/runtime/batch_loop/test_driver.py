"""The order of a driver's steps, and what it does after each failure; Spark and the broker are stand-ins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from tests.metadata import described
from tests.runtime.miniature import Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import PRODUCER_ID, ScriptedKafka
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.clock import SystemClock
from tidegate.contracts.errors import EngineError, Fenced, StartOver, StateError, Unavailable
from tidegate.contracts.kill_points import watched
from tidegate.runtime.batch_loop import claimed_operator
from tidegate.runtime.batch_loop.claimed_operator import ClaimedOperator
from tidegate.runtime.batch_loop.driver import InDoubt, OperatorDriver
from tidegate.runtime.task.messages import KafkaAttempt, PartitionPlan
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    """A broker with five committed records in each partition, and some that are not committed yet."""
    broker = ScriptedKafka()
    broker.stable, broker.ends = {0: 5, 1: 5}, {0: 9, 1: 9}
    use_broker(monkeypatch, broker)
    return broker


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def driver(kafka: ScriptedKafka, jobs: Jobs, tmp_path: Path) -> OperatorDriver:
    """A driver that has claimed its operator; the broker has forgotten what it was asked for that."""
    started = driver_of(application(tmp_path), jobs)
    started._run_owned(lambda _operator: None)
    kafka.asked.clear()
    kafka.sent_together.clear()
    return started


def fail(_attempt: KafkaAttempt) -> None:
    raise EngineError("it failed")


def newest(driver: OperatorDriver) -> Any:
    """What the log says, read anew."""
    return LogVersion.at(driver.claim.operator.log.lake, None).newest()


INVALID_PRODUCER_EPOCH = 47


def committing(monkeypatch: pytest.MonkeyPatch, instead: Callable[..., None]) -> None:
    """`instead` is called with the real commit, and the commit's own arguments."""
    real = OperatorLog.commit
    monkeypatch.setattr(OperatorLog, "commit", lambda log, *given: instead(lambda: real(log, *given), *given))


def own_ids(kafka: ScriptedKafka) -> set[int]:
    return {request.producer_id for request in kafka.named("InitProducerId")}


# --- start


def test_a_failing_step_of_the_start_starts_over_at_the_claim(kafka: ScriptedKafka, jobs: Jobs, tmp_path: Path) -> None:
    driver = driver_of(application(tmp_path), jobs)
    kafka.silent.add("InitProducerId")
    with pytest.raises(EngineError):
        driver._run_owned(ClaimedOperator.round)
    kafka.silent.clear()
    driver._run_owned(ClaimedOperator.round)
    assert (newest(driver).epoch, newest(driver).action) == (2, "batch")


def test_an_operator_that_cannot_be_opened_is_claimed_again(
    driver: OperatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_log: OperatorLog, _newest: object) -> None:
        raise EngineError("the lake does not answer")

    driver.claim = InDoubt(driver.claim.operator)
    with monkeypatch.context() as patch:
        patch.setattr(claimed_operator.earlier_batches, "lineage", failing)
        with pytest.raises(EngineError):
            driver._run_owned(ClaimedOperator.round)
    driver._run_owned(ClaimedOperator.round)
    assert newest(driver).epoch == 3


def test_a_driver_that_was_fenced_claims_before_it_does_anything_else(driver: OperatorDriver) -> None:
    def fenced(_operator: ClaimedOperator) -> None:
        raise Fenced("another producer has taken the id over")

    with pytest.raises(Fenced):
        driver._run_owned(fenced)
    assert driver._run_owned(lambda _operator: newest(driver).epoch) == 2


# --- a batch


def test_a_batch_is_planned_up_to_the_last_stable_offset(driver: OperatorDriver, jobs: Jobs) -> None:
    driver.claim.operator.round()
    assert [(plan.partition, plan.start, plan.end) for plan in jobs.plans] == [(0, 0, 5), (1, 0, 5)]


def test_local_states_are_recovered_before_an_attempt_begins(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka
) -> None:
    driver.claim.operator.round()
    assert (jobs.brought_back, len(jobs.attempts)) == ([], 1)  # nothing was committed before
    kafka.stable = {0: 9, 1: 5}
    jobs.before = fail
    with pytest.raises(EngineError):
        driver.claim.operator.round()
    jobs.before = lambda _attempt: None
    driver.claim.operator.round()
    assert jobs.brought_back == [[0]]
    driver.claim = InDoubt(driver.claim.operator)
    kafka.stable = {0: 9, 1: 9}
    driver._run_owned(ClaimedOperator.round)
    assert jobs.brought_back == [[0], [1]]


def test_no_partition_is_idle_while_its_producers_transactions_are_open(
    kafka: ScriptedKafka, jobs: Jobs, tmp_path: Path
) -> None:
    """Both partitions hold something, and are read up to their last stable offsets; in 0 a transaction is open."""
    driver = driver_of(application(tmp_path, idle_after="1s"), jobs)
    kafka.stable, kafka.ends = {0: 0, 1: 0}, {0: 50, 1: 0}
    driver._run_owned(lambda _operator: None)
    held = dict.fromkeys((0, 1), Counts(held=1))
    driver.claim.operator.newest = described(driver.claim.operator.newest, totals=held, active_clock={0: 0, 1: 0})
    driver.claim.operator.round()
    assert [(plan.partition, plan.action) for plan in jobs.plans] == [(1, "idle")]


def test_a_flush_applies_a_changed_configuration_first(driver: OperatorDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    held, actions = dict.fromkeys((0, 1), Counts(held=1)), list[str]()

    def committed(plans: Sequence[PartitionPlan]) -> tuple[list[Any], list[Any]]:
        actions.append(plans[0].action)
        return [], []

    operator = driver.claim.operator
    operator.newest = described(operator.newest, totals=held, applied="former")
    monkeypatch.setattr(operator, "_commit", committed)
    assert operator.flush()
    assert actions == ["apply", "flush"]


def test_every_try_of_a_batch_has_a_new_attempt_id(driver: OperatorDriver, jobs: Jobs) -> None:
    jobs.before = fail
    for _ in range(2):
        with pytest.raises(EngineError):
            driver.claim.operator.round()
    jobs.before = lambda attempt: None
    driver.claim.operator.round()
    assert len({attempt.batch for attempt in jobs.attempts}) == 1
    assert len({attempt.attempt for attempt in jobs.attempts}) == 3
    assert newest(driver).attempt == jobs.attempts[-1].attempt


def test_the_clock_is_read_once_for_a_batch(
    driver: OperatorDriver, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(1_000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: next(ticks))
    driver.claim.operator.round()
    assert jobs.attempts[0].clock == newest(driver).clock


def test_nothing_is_reached_while_a_record_that_is_due_waits_for_the_table(
    driver: OperatorDriver, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, settled = driver.claim.operator, [False]
    monkeypatch.setattr(type(operator._tables), "nothing_waits", lambda table, newest: settled[0])
    driver._round(operator)
    assert operator.newest.next_offsets == {0: 5, 1: 5}
    assert not driver.has_reached({"in": {0: 5, 1: 5}})
    settled[0] = True
    driver._round(operator)
    assert driver.has_reached({"in": {0: 5, 1: 5}})


def test_an_operator_without_output_topics_runs_without_transactions(
    kafka: ScriptedKafka, jobs: Jobs, tmp_path: Path
) -> None:
    driver = driver_of(application(tmp_path, output=None), jobs)
    driver.run(Event(), until_caught_up=True)
    assert (driver.claim.operator.newest.action, driver.claim.operator.newest.next_offsets) == ("batch", {0: 5, 1: 5})
    assert [plan.producer for plan in jobs.plans] == [None, None]
    assert not {"InitProducerId", "EndTxn", "TxnOffsetCommit"} & set(kafka.names)


def test_no_batch_is_planned_while_a_publication_is_not_settled(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka
) -> None:
    driver.claim.operator.publication.mark_unclear([1])
    kafka.silent.add("InitProducerId")
    with pytest.raises(EngineError):
        driver.claim.operator.round()
    assert jobs.attempts == []
    kafka.silent.clear()
    driver.claim.operator.round()
    assert len(jobs.attempts) == 1


def test_transactions_end_after_the_commit_and_only_those_that_were_opened(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.opened = {1}

    def noted(commit: Callable[[], None], *_given: object) -> None:
        commit()
        kafka.sent_together.append(["commit"])

    committing(monkeypatch, noted)
    driver.claim.operator.round()
    sent = [sent for sent in kafka.sent_together if sent != ["ListOffsets"]]
    assert sorted(sent[:2]) == [["TxnOffsetCommit"], ["commit"]], "the mark is added while the log is written"
    assert sent[2:] == [["EndTxn"]]
    assert [request.committed for request in kafka.named("EndTxn")] == [True]


def test_a_transaction_whose_mark_was_not_added_is_aborted_and_its_output_published_from_the_log(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka
) -> None:
    jobs.opened = {0, 1}
    kafka.codes["TxnOffsetCommit"] = [INVALID_PRODUCER_EPOCH]
    driver.claim.operator.round()
    assert newest(driver).action == "batch"
    [ended], [aborted] = kafka.named("EndTxn"), kafka.named("InitProducerId")
    assert {ended.transactional_id, aborted.transactional_id} == {"app-op-0", "app-op-1"}
    assert kafka.names[-2:] == ["InitProducerId", "OffsetFetch"], "the mark says what is left to publish"
    assert driver.claim.operator.publication.unclear == set()


def test_topic_ids_are_compared_before_and_after_a_batch_is_read(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka
) -> None:
    jobs.before = lambda attempt: kafka.topics.update({"in": ("made again", 2)})
    before = driver.claim.operator.newest.batch
    with pytest.raises(StateError, match="deleted and created again"):
        driver.claim.operator.round()
    assert (newest(driver).batch, len(jobs.attempts)) == (before, 1)
    with pytest.raises(StateError, match="deleted and created again"):
        driver.claim.operator.round()
    assert len(jobs.attempts) == 1


def test_a_driver_reaches_its_kill_points_in_order(kafka: ScriptedKafka, jobs: Jobs, tmp_path: Path) -> None:
    reached: list[str] = []
    driver = driver_of(application(tmp_path), jobs)
    with watched(reached.append):
        driver._run_owned(ClaimedOperator.round)
        driver._run_owned(ClaimedOperator.compact)
    start, batch = ["after_claim", "between_initialisations"], ["before_commit", "after_commit", "between_ends"]
    assert reached == [*start, *batch, "before_compaction_commit", "after_compaction_commit"]


# --- failures


def test_a_failed_attempt_leaves_neither_files_nor_open_transactions(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka
) -> None:
    def write_and_fail(attempt: KafkaAttempt) -> None:
        naming = Naming(attempt.log_format, attempt.batch, attempt.attempt, 0)
        write_rows(attempt.log, naming, [Rows("state", 0, pa.table({"key": [b"k"]}))], topic="in")
        fail(attempt)

    jobs.before = write_and_fail
    with pytest.raises(EngineError):
        driver.claim.operator.round()
    assert list(driver.claim.operator.log.place.folder.glob("data/*")) == []
    assert own_ids(kafka) == {PRODUCER_ID}
    assert [request.transactional_id for request in kafka.named("InitProducerId")] == ["app-op-0", "app-op-1"]


def test_a_commit_that_is_refused_or_unclear_starts_over_with_a_claim(
    driver: OperatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_commit: object, *_given: object) -> None:
        raise EngineError("another commit won the race")

    with monkeypatch.context() as patch:
        committing(patch, refused)
        with pytest.raises(StartOver):
            driver._run_owned(ClaimedOperator.round)
    driver._run_owned(ClaimedOperator.round)
    assert (newest(driver).epoch, newest(driver).action) == (2, "batch")


def test_no_transaction_stays_open_while_the_lake_is_waited_for(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files stay: the commit may have landed. What was published by it is published again by the next claim."""

    def unclear(commit: Callable[[], None], *_given: object) -> None:
        commit()
        raise Unavailable("it is unknown whether the batch was committed to the lake")

    jobs.opened = {1}
    with monkeypatch.context() as patch:
        committing(patch, unclear)
        with pytest.raises(StartOver):
            driver._run_owned(ClaimedOperator.round)
    assert [name for name in kafka.names if name not in ("ListOffsets", "TxnOffsetCommit")] == ["InitProducerId"]
    assert [(one.transactional_id, one.producer_id) for one in kafka.named("InitProducerId")] == [
        ("app-op-1", PRODUCER_ID)
    ]
    assert newest(driver).action == "batch"


def test_a_driver_that_ends_with_a_commit_in_doubt_leaves_its_transactions_open(
    driver: OperatorDriver, jobs: Jobs, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unclear(_commit: object, *_given: object) -> None:
        kafka.silent.add("InitProducerId")
        raise Unavailable("it is unknown whether the batch was committed to the lake")

    jobs.opened = {1}
    committing(monkeypatch, unclear)
    with pytest.raises(StartOver):
        driver._run_owned(ClaimedOperator.round)
    kafka.silent.clear()
    driver.claim.operator.publication._committed_offsets.clear()
    driver.claim.operator.drain()
    assert {request.transactional_id for request in kafka.named("EndTxn")} == {"app-op-0"}
    assert {request.transactional_id for request in kafka.named("InitProducerId")} == {"app-op-1"}


def test_a_driver_that_ends_aborts_its_open_transactions(driver: OperatorDriver, kafka: ScriptedKafka) -> None:
    driver.claim.operator.publication.mark_unclear([1])
    driver.claim.operator.publication._committed_offsets = driver.claim.operator.newest.next_offsets
    driver.claim.operator.publication._marked_at = dict.fromkeys(
        driver.claim.operator.publication._committed_offsets, math.inf
    )
    driver.claim.operator.drain()
    assert [(one.transactional_id, one.producer_id) for one in kafka.named("InitProducerId")] == [
        ("app-op-1", PRODUCER_ID)
    ]


def test_a_batch_that_lost_a_record_leaves_no_transaction_open(
    driver: OperatorDriver, kafka: ScriptedKafka, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unbalanced(*_given: object, **_named: object) -> None:
        raise StateError("not every record has exactly one count")

    monkeypatch.setattr(claimed_operator, "after_batch", unbalanced)
    with pytest.raises(StateError):
        driver.claim.operator.round()
    assert own_ids(kafka) == {PRODUCER_ID}
