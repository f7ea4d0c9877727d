"""Background recovery of local states: without a deadline, and ready partitions do not wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.task.test_task import plan
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.errors import Unavailable
from tidegate.runtime.batch_loop import state_recovery
from tidegate.runtime.batch_loop.state_recovery import Recovering
from tidegate.runtime.task.messages import PartitionPlan, PartitionResult, RecoveryOutcome
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state.protocol_decisions import RecoveryMethod, RecoveryPlan, Wanted

pytestmark = pytest.mark.fast

PATIENCE_S = 20.0
COMMITTED = Wanted(epoch=1, batch=2, last=(1, "a"))


def rebuild(why: str) -> RecoveryPlan:
    return RecoveryPlan(RecoveryMethod.REBUILD, why)


@dataclass
class Jobs:
    """States that come back when the test lets them; those in `slow` are to be rebuilt, until `rebuilt` is set."""

    slow: dict[int, str] = field(default_factory=dict)
    rebuilt: Event = field(default_factory=Event)
    fails: Callable[[], object] = lambda: None
    cores: int = 2
    waves: list[list[int]] = field(default_factory=list)
    given_up: int = 0

    def recover_states(self, attempt: Any, plans: Sequence[PartitionPlan], *, rebuilds: bool) -> list[RecoveryOutcome]:
        self.waves.append([plan.partition for plan in plans])
        self.fails()
        if rebuilds:
            assert self.rebuilt.wait(PATIENCE_S)
            return [RecoveryOutcome(plan.partition, True, rebuild(self.slow[plan.partition]), 7.0) for plan in plans]
        return [
            RecoveryOutcome(plan.partition, False, rebuild(self.slow[plan.partition]), 0.1)
            if plan.partition in self.slow
            else RecoveryOutcome(plan.partition, True, RecoveryPlan(RecoveryMethod.GO_ON, "well"), 0.1)
            for plan in plans
        ]

    def give_up(self) -> None:
        self.given_up += 1


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round hardly waits for quick recoveries: what is rebuilt would let it wait in vain."""
    monkeypatch.setattr(state_recovery, "QUICK_S", 0.01)


@pytest.fixture
def condition(tmp_path: Path) -> DriverStatusFile:
    return DriverStatusFile(tmp_path)


def plans_of(*partitions: int, action: Any = "batch") -> list[PartitionPlan]:
    return [plan(partition=partition, action=action, wanted=COMMITTED) for partition in partitions]


def ready(states: Recovering, plans: list[PartitionPlan]) -> list[int]:
    return [each.partition for each in states.ready(plans, lambda waiting: (None, waiting))]  # type: ignore[arg-type,return-value]


def until_ready(states: Recovering, plans: list[PartitionPlan], wanted: list[int]) -> None:
    for _ in range(1_000):
        if ready(states, plans) == wanted:
            return
        Event().wait(0.01)
    raise AssertionError(f"{wanted} never became ready")


def test_a_partition_without_a_commit_has_no_state_to_recover(condition: DriverStatusFile) -> None:
    jobs = Jobs()
    assert ready(Recovering(jobs, condition), [plan(partition=0), *plans_of(1)]) == [0, 1]
    assert jobs.waves == [[1]]


def test_a_join_without_a_commit_builds_its_replica_first(condition: DriverStatusFile) -> None:
    jobs = Jobs()
    assert ready(Recovering(jobs, condition), [plan(partition=0, tables={"facts": SimpleNamespace()})]) == [0]
    assert jobs.waves == [[0]]


def test_unchanged_states_are_ready_within_the_round(condition: DriverStatusFile) -> None:
    jobs = Jobs()
    states = Recovering(jobs, condition)
    assert ready(states, plans_of(0, 1, 2)) == [0, 1, 2]
    assert ready(states, plans_of(0, 2)) == [0, 2]
    assert jobs.waves == [[0, 1, 2]]


@pytest.mark.usefixtures("hasty")
def test_partitions_that_are_ready_do_not_wait_for_those_that_are_rebuilt(condition: DriverStatusFile) -> None:
    jobs = Jobs(slow={1: "there is no local state", 3: "torn"})
    states = Recovering(jobs, condition)
    until_ready(states, plans_of(0, 1, 2, 3), [0, 2])
    assert ready(states, plans_of(0, 1)) == [0]
    assert dict(condition.last.recovering) == {1: "there is no local state", 3: "torn"}
    jobs.rebuilt.set()
    until_ready(states, plans_of(0, 1, 2, 3), [0, 1, 2, 3])
    assert ready(states, plans_of(0)) == [0]
    assert dict(condition.last.recovering) == {}


def test_at_most_one_state_per_core_is_rebuilt_at_a_time(condition: DriverStatusFile) -> None:
    jobs = Jobs(slow=dict.fromkeys(range(5), "torn"))
    jobs.rebuilt.set()
    until_ready(Recovering(jobs, condition), plans_of(*range(5)), [0, 1, 2, 3, 4])
    assert jobs.waves == [[0, 1, 2, 3, 4], [0, 1], [2, 3], [4]]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("action", ["flush", "apply"])
def test_work_on_all_partitions_waits_for_all_states(condition: DriverStatusFile, action: str) -> None:
    jobs = Jobs(slow={1: "torn"})
    states = Recovering(jobs, condition)
    until_ready(states, plans_of(0, 1), [0])
    assert ready(states, plans_of(0, 1, action=action)) == []
    jobs.rebuilt.set()
    until_ready(states, plans_of(0, 1, action=action), [0, 1])


def test_after_a_failed_attempt_only_its_partitions_are_recovered_first(condition: DriverStatusFile) -> None:
    jobs = Jobs()
    states = Recovering(jobs, condition)
    ready(states, plans_of(0, 1, 2))
    states.mark_unready([1])
    assert ready(states, plans_of(0, 1, 2)) == [0, 1, 2]
    states.mark_unready()
    assert ready(states, plans_of(0, 2)) == [0, 2]
    assert jobs.waves == [[0, 1, 2], [1], [0, 2]]


def test_a_failed_recovery_is_raised_and_retried(
    condition: DriverStatusFile,
) -> None:
    def away() -> None:
        raise Unavailable("the lake is unavailable")

    jobs = Jobs(fails=away)
    states = Recovering(jobs, condition)
    with pytest.raises(Unavailable):
        until_ready(states, plans_of(0), [0])
    jobs.fails = lambda: None
    assert ready(states, plans_of(0)) == [0]


@pytest.mark.usefixtures("hasty")
def test_a_driver_that_ends_does_not_wait_for_rebuilds(condition: DriverStatusFile) -> None:
    jobs = Jobs(slow={0: "torn"})
    states = Recovering(jobs, condition)
    ready(states, plans_of(0))
    states.give_up()
    jobs.rebuilt.set()
    assert jobs.given_up == 1


def test_the_first_batch_after_a_recovery_records_how_it_was_done(condition: DriverStatusFile) -> None:
    jobs = Jobs(slow={1: "torn"})
    jobs.rebuilt.set()
    states = Recovering(jobs, condition)
    until_ready(states, plans_of(0, 1), [0, 1])
    completed = [states.with_recovery(result(partition)) for partition in (0, 1, 1)]
    assert [each.recovery.description for each in completed if each.recovery is not None] == [
        "go on: well",
        "rebuild: torn",
        "go on: it was there",
    ]
    assert [each.seconds["recover"] for each in completed] == pytest.approx([0.3, 7.2, 0.2])


def result(partition: int) -> PartitionResult:
    return PartitionResult(
        partition=partition,
        action="batch",
        next_offset=1,
        stream_time=1,
        counts=Counts(),
        measures={},
        files=(),
        transaction=None,
        recovery=RecoveryPlan(RecoveryMethod.GO_ON, "it was there"),
        seconds={"recover": 0.2},
    )
