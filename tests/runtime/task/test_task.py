"""One partition's share of a batch: the order of its steps, on a real log and a real local state."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.lakes import lake_at
from tests.runtime.miniature import use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import Output
from tidegate.contracts.errors import EngineError, Superseded
from tidegate.contracts.log_schema import FORMAT, log_schema
from tidegate.contracts.records import Records, Row
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression import SuppressionConfig
from tidegate.runtime.environment import REAL
from tidegate.runtime.kafka.client import TopicMetadata
from tidegate.runtime.kafka.fetch import Fetched
from tidegate.runtime.kafka.request_retries import Deadline
from tidegate.runtime.kafka.transactions import init_producer
from tidegate.runtime.publishing.encoding import Opened, Prepared
from tidegate.runtime.publishing.topics import Outlets, OutputRoute
from tidegate.runtime.task import ports, run
from tidegate.runtime.task.messages import (
    KafkaAttempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
)
from tidegate.runtime.task.ports import KafkaPort, Worked
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.local.header import HeaderFile
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.machine import THIS_MACHINE
from tidegate.state.protocol_decisions import Header, RecoveryMethod, Wanted

pytestmark = pytest.mark.fast

OPERATOR, PARTITION = "op", 3
PASSES_ALL = {"kind": "suppression", "input": "in", "output": "out", "buffer": {"max_keys": 0, "when_full": "emit"}}
CONFIG = read(SuppressionConfig, PASSES_ALL)


@dataclass
class StandIn:
    """A port that reads one record and opens nothing, unless told otherwise."""

    rows: tuple[Row, ...] = (Row(b"k", b"v", 1, 0),)
    on_read: Callable[[], object] = lambda: None
    on_open: Callable[[], object] = lambda: None
    reads: list[int] = field(default_factory=list)
    opened: list[list[int]] = field(default_factory=list)

    def read_together(self, plans: Sequence[PartitionPlan]) -> Mapping[int, Fetched]:
        return {}

    def read(self, plan: PartitionPlan) -> Fetched:
        self.reads.append(plan.partition)
        self.on_read()
        return Fetched(records=Records.from_rows(list(self.rows)), next_offset=len(self.rows))

    def topics(self) -> Mapping[str, TopicMetadata]:
        return {}

    def prepare(self, worked: Sequence[Worked]) -> Prepared:
        output: Any = [one.plan.partition for one in worked]
        return Prepared(output, (), [])

    def open(self, prepared: Prepared) -> Opened:
        self.on_open()
        partitions: Any = prepared.producer
        self.opened.append(partitions)
        return Opened(prepared.producer, ())


@pytest.fixture
def attempt(tmp_path: Path) -> KafkaAttempt:
    log = OperatorLog.open(
        lake_at(tmp_path / "lake" / OPERATOR), OPERATOR, log_schema(operator_for(CONFIG).columns), create=True
    )
    return KafkaAttempt(
        operator=OPERATOR,
        config=CONFIG,
        topic="in",
        route=OutputRoute(
            operator=OPERATOR,
            input="in",
            group="group",
            outlets=Outlets((Output("out"),), None),
            limits={"out": 2**20},
            times_in_values=False,
        ),
        kafka={},
        log=log.lake,
        log_format=FORMAT,
        version=log.version,
        table_id=log.table_id,
        state=tmp_path / "state",
        epoch=1,
        batch=1,
        attempt="mine",
        clock=0,
        max_batch_bytes=2**20,
        deadline_s=5.0,
    )


def plan(**changes: Any) -> PartitionPlan:
    given = PartitionPlan(
        partition=PARTITION,
        action="batch",
        start=0,
        end=1,
        stream_time=-1,
        advance_to=-1,
        wanted=Wanted(epoch=1, batch=1, last=None),
        producer=None,
    )
    return replace(given, **changes)


def header(attempt: KafkaAttempt) -> Header | None:
    return HeaderFile(attempt.state / OPERATOR / attempt.table_id / str(PARTITION) / "header").read()


def only(attempt: KafkaAttempt, given: PartitionPlan, port: Any) -> PartitionResult | PartitionFailure:
    """The answer of a task with one plan."""
    (answer,) = run.run_plans(attempt, [given], port)
    return answer


def ran(attempt: KafkaAttempt, port: Any) -> PartitionResult:
    done = only(attempt, plan(), port)
    assert isinstance(done, PartitionResult), done
    return done


def failed(attempt: KafkaAttempt, port: Any) -> Exception:
    done = only(attempt, plan(), port)
    assert isinstance(done, PartitionFailure), done
    return done.error


def refuse() -> None:
    raise EngineError("it failed")


# --- the order of the steps


def test_a_task_that_spark_retries_refuses_to_run(attempt: KafkaAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    port = StandIn()
    for number, runs in ((1, False), (0, True)):
        context = SimpleNamespace(attemptNumber=lambda number=number: number)
        monkeypatch.setattr(run, "TaskContext", SimpleNamespace(get=lambda context=context: context))
        assert isinstance(only(attempt, plan(), port), PartitionResult) is runs
        assert bool(port.reads) is runs


def test_a_superseded_task_reads_and_writes_nothing(attempt: KafkaAttempt) -> None:
    ran(replace(attempt, epoch=2, attempt="newer"), StandIn())
    before, port = header(attempt), StandIn()
    files = sorted(attempt.log.place.folder.rglob("*.parquet"))
    assert isinstance(failed(attempt, port), Superseded)
    assert (header(attempt), port.reads, sorted(attempt.log.place.folder.rglob("*.parquet"))) == (before, [], files)


def test_a_failed_fetch_never_damages_a_local_state(attempt: KafkaAttempt) -> None:
    ran(attempt, StandIn())
    next_batch = replace(attempt, batch=2, attempt="next")
    before = header(attempt)
    wanted = plan(wanted=Wanted(epoch=1, batch=2, last=(1, "mine")))
    assert isinstance(only(next_batch, wanted, StandIn(on_read=refuse)), PartitionFailure)
    assert header(attempt) == before
    assert before is not None and before.complete
    done = only(replace(attempt, batch=2, attempt="again"), wanted, StandIn())
    assert (
        isinstance(done, PartitionResult) and done.recovery is not None and done.recovery.method is RecoveryMethod.GO_ON
    )


def test_the_real_environment_reaches_a_worker_process_as_it_is() -> None:
    assert pickle.loads(pickle.dumps(REAL)) == REAL


def test_the_header_is_dirty_while_the_state_changes_and_complete_at_the_end(attempt: KafkaAttempt) -> None:
    seen: list[Header | None] = []
    port = StandIn(on_read=lambda: seen.append(header(attempt)), on_open=lambda: seen.append(header(attempt)))
    with in_kernel(lambda: seen.insert(1, header(attempt))):
        ran(attempt, port)
    at_read, changed, at_output, done = (*seen, header(attempt))
    assert at_read is not None and (at_read.attempt, at_read.complete) == ("", True)
    assert changed is not None and (changed.epoch, changed.batch, changed.attempt) == (1, 1, "mine")
    assert (changed.complete, changed.boot_id) == (False, THIS_MACHINE.boot_id())
    assert done == at_output
    assert done is not None and (done.attempt, done.complete, done.before) == ("mine", True, (-1, ""))


def test_a_task_that_fails_in_its_kernel_leaves_a_dirty_header(attempt: KafkaAttempt) -> None:
    with in_kernel(refuse):
        failed(attempt, StandIn())
    left = header(attempt)
    assert left is not None and (left.attempt, left.complete) == ("mine", False)


@contextmanager
def in_kernel(happens: Callable[[], object]) -> Iterator[None]:
    """Inside, that happens before every step of an operator."""
    act = run._act
    with patch.object(run, "_act", lambda *given: (happens(), act(*given))[1]):
        yield


@pytest.mark.parametrize("step", ["output", "files"])
def test_a_task_that_fails_after_its_kernel_is_undone_by_the_next_attempt(
    attempt: KafkaAttempt, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    port = StandIn(on_open=refuse) if step == "output" else StandIn()
    if step == "files":
        monkeypatch.setattr(run, "write_rows", lambda *_, **__: refuse())
    failed(attempt, port)
    left = header(attempt)
    assert left is not None and (left.attempt, left.complete, left.before) == ("mine", True, (-1, ""))
    monkeypatch.undo()
    done = ran(replace(attempt, attempt="again"), StandIn())
    assert done.recovery is not None
    assert (done.recovery.description, done.counts) == ("undo: the local state is that of a failed attempt", COUNTS)


COUNTS = Counts(records_in=1, applied=1, emitted=1)


def test_the_lock_is_held_until_the_output_is_open(attempt: KafkaAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def try_to_take(when: str) -> None:
        place = {"operator": OPERATOR, "table_id": attempt.table_id, "token": (9, 9), "timeout_s": 0.0}
        with pytest.raises(EngineError, match="another task holds"), LocalState.lock(attempt.state, PARTITION, **place):  # type: ignore[arg-type]
            pass
        tried.append(when)

    complete = LocalState.complete

    def observed(local: LocalState, *undo: pa.Table) -> None:
        complete(local, *undo)
        try_to_take("complete")

    port = StandIn(on_read=lambda: try_to_take("read"), on_open=lambda: try_to_take("open"))
    monkeypatch.setattr(LocalState, "complete", observed)
    ran(attempt, port)
    assert tried[-3:] == ["read", "complete", "open"]


# --- between the topics


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    broker = ScriptedKafka()
    use_broker(monkeypatch, broker)
    monkeypatch.setattr(ports, "fetch", lambda *_, **__: StandIn().read(plan()))
    return broker


def through_kafka(attempt: KafkaAttempt, kafka: ScriptedKafka, **changes: Any) -> PartitionResult:
    producer = init_producer(kafka, "id", timeout_ms=60_000)  # type: ignore[arg-type]
    given = plan(producer=producer, **changes)
    done = only(attempt, given, KafkaPort(attempt=attempt, deadline=Deadline(5.0, SYSTEM_CLOCK)))
    assert isinstance(done, PartitionResult), done
    return done


def test_emissions_are_written_to_the_partition_of_their_input(attempt: KafkaAttempt, kafka: ScriptedKafka) -> None:
    done = through_kafka(attempt, kafka)
    assert done.transaction is not None and done.transaction.producer.opened
    assert done.transaction.partitions == (PARTITION,)
    [output] = kafka.named("Produce")
    assert (output.topic_data[0].name, output.topic_data[0].partition_data[0].index) == ("out", PARTITION)


def test_without_emissions_nothing_is_opened(attempt: KafkaAttempt, kafka: ScriptedKafka) -> None:
    held = read(SuppressionConfig, {"kind": "suppression", "input": "in", "until": {"time_limit": "1h"}})
    done = through_kafka(replace(attempt, config=held), kafka)
    assert done.counts.held == 1
    assert done.transaction is None
    assert kafka.names == ["InitProducerId"]


def test_the_partitions_of_a_task_share_a_transaction(attempt: KafkaAttempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SHARING", 2)
    port = StandIn()
    run.run_plans(attempt, [plan(partition=partition) for partition in range(3)], port)
    assert sorted(port.opened) == [[0, 1], [2]]


def test_the_partitions_of_a_task_share_one_deadline(
    attempt: KafkaAttempt, kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    monkeypatch.setattr(ports, "fetch", lambda *_, deadline_s, **__: given.append(deadline_s))
    monkeypatch.setattr(ports, "open_output", lambda _client, _prepared, deadline_s: given.append(deadline_s))
    port = KafkaPort(attempt=attempt, deadline=Deadline(0.0, SYSTEM_CLOCK))
    port.read(plan())
    port.open(Prepared(init_producer(kafka, "id", timeout_ms=60_000), (0,), []))
    assert given == [0.0, 0.0]


# --- offsets that the input used before


SHUT_DOWN = {"kind": "suppression", "input": "in", "output": "out", "buffer": {"max_keys": 1, "when_full": "shut_down"}}


def test_a_record_at_a_reused_offset_is_a_separate_row(attempt: KafkaAttempt) -> None:
    done = only(attempt, plan(raised=((7, 7),)), StandIn())
    assert isinstance(done, PartitionResult)
    assert done.next_offset == 1
    [file] = done.files
    rows = pq.read_table(attempt.log.place.folder / file.path)
    assert rows.filter(pc.equal(rows["kind"], "emission"))["offset"].to_pylist() == [7]


def test_a_partition_stopped_by_a_limit_names_an_offset_of_the_input(attempt: KafkaAttempt) -> None:
    bounded = replace(attempt, config=read(SuppressionConfig, SHUT_DOWN))
    port = StandIn(rows=(Row(b"a", b"v", 1, 0), Row(b"b", b"v", 1, 1)))
    done = only(bounded, plan(end=2, raised=((7, 7),)), port)
    assert isinstance(done, PartitionResult)
    assert (done.stopped_at, done.next_offset) == (1, 1)
