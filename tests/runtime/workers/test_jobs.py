"""A driver's jobs on workers: what is sent to them, and what their loss means to an attempt."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.runtime.miniature import application
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import EngineError
from tidegate.contracts.log_schema import FORMAT
from tidegate.contracts.operator import Layout
from tidegate.runtime.publishing.topics import Outlets, OutputRoute
from tidegate.runtime.task.messages import KafkaAttempt, PartitionFailure
from tidegate.runtime.task.results import results_of
from tidegate.runtime.task.run import drop_states
from tidegate.runtime.task.warm_up import freeze_loaded_objects
from tidegate.runtime.workers.jobs import WorkerJobs
from tidegate.runtime.workers.lanes import Item, Lane, WorkerLost
from tidegate.runtime.workers.messages import divided
from tidegate.runtime.workers.placement import Post
from tidegate.runtime.workers.pool import TeamSize, Worker
from tidegate.state.local.local_state import LocalState

pytestmark = pytest.mark.fast

SECRET = "hunter2"
ROUTE = OutputRoute(
    operator="op",
    input="in",
    group="group",
    outlets=Outlets((), None),
    limits={},
    times_in_values=False,
)


class Sent(Lane):
    """A lane that notes its items, and what a process would be sent."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.items: list[Item] = []
        self.bytes: list[bytes] = []

    def put(self, item: Item) -> None:
        self.items.append(item)
        self.bytes.append(cloudpickle.dumps(self._work(item)))


class Pool:
    """Two workers; partitions are at home in turn."""

    starts_in_background = False

    def __init__(self) -> None:
        self.strays: list[tuple[Worker, frozenset[int]]] = []
        self.workers: list[Any] = [Worker(seat=None, job=None, batch=Sent()) for _ in range(2)]  # type: ignore[arg-type]

    def at_home(self, _owner: str, _operator: str, partitions: list[int], _limit: TeamSize) -> dict[int, Worker]:
        return {partition: self.workers[partition % 2] for partition in partitions}

    def warm_up(self, _owner: str, _config: OperatorRules) -> None: ...

    def to_drop(self, _owner: str) -> list[tuple[Worker, frozenset[int]]]:
        return self.strays


@pytest.fixture
def attempt(tmp_path: Path) -> KafkaAttempt:
    config = application(tmp_path).operators["op"]
    return KafkaAttempt(
        operator="op",
        config=config,
        topic="in",
        log=tmp_path / "op",
        log_format=FORMAT,
        version=1,
        table_id="id",
        state=tmp_path,
        epoch=1,
        batch=7,
        attempt="a",
        clock=0,
        kafka={"bootstrap.servers": "nowhere:1", "sasl.password": SECRET},
        route=ROUTE,
        max_batch_bytes=1,
        deadline_s=60.0,
    )


def plans(*partitions: int, records: int = 10**6) -> list[Any]:
    return [SimpleNamespace(partition=partition, size=records) for partition in partitions]


def test_secrets_and_configuration_travel_once_for_each_worker_and_operator(attempt: KafkaAttempt) -> None:
    lane, again = Sent(), replace(attempt, batch=8, version=2, attempt="b", max_batch_bytes=2)
    for each in (attempt, again):
        lane.put(Item("driver 1", len, (), each))
    first, second = lane.bytes
    assert SECRET.encode() in first
    assert SECRET.encode() not in second
    assert len(second) < len(first) / 2
    assert pickle.loads(second).attempt[1]["batch"] == 8
    lane.put(Item("driver 1", len, (), replace(again, kafka={"sasl.password": "other"})))
    assert b"other" in lane.bytes[-1]


def test_an_attempt_is_the_same_after_its_way(attempt: KafkaAttempt) -> None:
    common, own = divided(attempt)
    assert type(attempt)(**common, **own) == attempt


def test_what_a_driver_has_loaded_is_no_part_of_its_garbage_collections(attempt: KafkaAttempt) -> None:
    freeze_loaded_objects.cache_clear()
    gc.unfreeze()
    pool: Any = Pool()
    WorkerJobs(pool).warm_up(attempt.config)
    assert gc.get_freeze_count() > 10_000


def test_the_loss_of_a_worker_fails_its_plans_and_so_the_attempt_without_waiting_for_others(
    attempt: KafkaAttempt,
) -> None:
    pool: Any = Pool()
    lost, other = (worker.batch for worker in pool.workers)

    def put(item: Item) -> None:
        Sent.put(lost, item)
        item.answer.set_exception(WorkerLost("a worker was lost"))

    lost.put = put
    answers = WorkerJobs(pool).run(attempt, plans(0, 1, 2))
    assert [(type(each), each.partition) for each in answers] == [(PartitionFailure, 0), (PartitionFailure, 2)]
    assert [plan.partition for plan in other.items[0].arguments[0]] == [1]
    with pytest.raises(EngineError, match="a worker was lost"):
        results_of(answers)


@pytest.mark.parametrize(
    ("places", "records", "groups"),
    [("aa", 10, [[0, 1, 2, 3]]), ("aa", 10**6, [[0, 2], [1, 3]]), ("ab", 10, [[0, 2], [1, 3]])],
    ids=["few records at one place", "many records", "two places"],
)
def test_one_worker_of_a_place_has_all_partitions_of_a_batch_with_few_records(
    attempt: KafkaAttempt, places: str, records: int, groups: list[list[int]]
) -> None:
    pool: Any = Pool()
    for number, (worker, place) in enumerate(zip(pool.workers, places, strict=True)):
        worker.home = Post(place, str(number))
    done: list[list[int]] = []

    def do(item: Item) -> None:
        done.append([plan.partition for plan in item.arguments[0]])
        item.answer.set_result([])

    for worker in pool.workers:
        worker.batch.put = do
    WorkerJobs(pool).run(attempt, plans(0, 1, 2, 3, records=records))
    assert done == groups


def test_a_place_is_told_to_drop_copies_of_states_that_are_at_home_elsewhere(attempt: KafkaAttempt) -> None:
    pool: Any = Pool()
    done: list[Item] = []

    def do(item: Item) -> None:
        done.append(item)
        item.answer.set_result([])

    for worker in pool.workers:
        worker.batch.put = do
    pool.strays = [(pool.workers[1], frozenset({5}))]
    WorkerJobs(pool).run(attempt, plans(0))
    assert [(item.function, item.arguments) for item in done[1:]] == [(drop_states, (frozenset({5}),))]


def test_copies_are_removed_unless_a_task_works_on_them(attempt: KafkaAttempt) -> None:
    root, layout = attempt.state, Layout(kind="test", version=1, arrays=(), capacity={})
    of_log = {"operator": attempt.operator, "table_id": attempt.table_id, "token": (1, 1), "timeout_s": 5.0}
    for partition in (0, 1, 2):
        with LocalState.lock(root, partition, **of_log) as local:  # type: ignore[arg-type]
            local.rebuild(layout)
            local.begin(1, 1, "a")
            local.complete()
    with LocalState.lock(root, 1, **of_log):  # type: ignore[arg-type]
        assert drop_states(attempt, {1, 2, 3}) == [2]
    folder = root / attempt.operator / attempt.table_id
    assert sorted(header.parent.name for header in folder.glob("*/header")) == ["0", "1"]
    assert [path.name for path in (folder / "2").iterdir()] == ["lock"]


def test_the_error_of_a_task_is_raised(attempt: KafkaAttempt) -> None:
    pool: Any = Pool()
    lane = pool.workers[0].batch
    lane.put = lambda item: item.answer.set_exception(EngineError("the task of a worker failed"))
    with pytest.raises(EngineError, match="the task of a worker failed"):
        WorkerJobs(pool).run(attempt, plans(0))
