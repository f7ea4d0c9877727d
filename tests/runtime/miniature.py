"""One application with a scripted broker and jobs that a test writes: everything between them is real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import EngineError
from tidegate.runtime.batch_loop import driver as drivers
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import Application, application_of
from tidegate.runtime.kafka import client as kafka_client
from tidegate.runtime.kafka.request_retries import Deadline
from tidegate.runtime.publishing.encoding import Opened
from tidegate.runtime.task.messages import (
    KafkaAttempt,
    PartitionPlan,
    PartitionResult,
    RecoveryOutcome,
)
from tidegate.runtime.task.ports import KafkaPort
from tidegate.state.protocol_decisions import RecoveryMethod, RecoveryPlan

NAME = "op"
AS_IT_WAS = RecoveryPlan(RecoveryMethod.GO_ON, "it is as it was")


def application(folder: Path, **operator: Any) -> Application:
    """An application with one operator, from `in` to `out`. Options that are None are left out."""
    given = {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "1h"}} | operator
    return application_of(
        {
            "application": "app",
            "lake": str(folder / "lake"),
            "state": str(folder / "state"),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": "nowhere:1"},
            "operators": {NAME: {option: value for option, value in given.items() if value is not None}},
        }
    )


@dataclass
class Jobs:
    """In the place of Spark: each plan reads one record and emits nothing; `before` is called with every attempt.

    Partitions in `opened` answer with an open transaction. `epoch`: the leader epoch of what is read.
    """

    before: Callable[[KafkaAttempt], object] = lambda attempt: None
    opened: set[int] = field(default_factory=set)
    attempts: list[KafkaAttempt] = field(default_factory=list)
    plans: list[PartitionPlan] = field(default_factory=list)
    shares_lake: bool = True
    probes: int = 0
    brought_back: list[list[int]] = field(default_factory=list)
    cores: int = 2
    epoch: int = -1

    def run(self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan]) -> list[PartitionResult]:
        self.attempts.append(attempt)
        self.plans = list(plans)
        self.before(attempt)
        head, *others = [self._result(plan) for plan in plans]
        return [
            replace(head, topics=KafkaPort(attempt=attempt, deadline=Deadline(1.0, SYSTEM_CLOCK)).topics()),
            *others,
        ]

    def recover_states(
        self, attempt: KafkaAttempt, plans: Sequence[PartitionPlan], *, rebuilds: bool
    ) -> list[RecoveryOutcome]:
        self.brought_back.append([plan.partition for plan in plans])
        return [RecoveryOutcome(plan.partition, True, AS_IT_WAS, 0.0) for plan in plans]

    def give_up(self) -> None: ...

    def warm_up(self, config: Any) -> None: ...

    def check_lake(self, log: Path) -> None:
        self.probes += 1
        if not self.shares_lake:
            raise EngineError("executors do not share the lake")

    def each(self, work: Any, items: Sequence[Any]) -> list[Any]:
        return [work(item) for item in items]

    def make_durable(self, attempt: KafkaAttempt) -> None: ...

    def _result(self, plan: PartitionPlan) -> PartitionResult:
        return PartitionResult(
            partition=plan.partition,
            action=plan.action,
            next_offset=plan.end,
            stream_time=1,
            counts=Counts(records_in=1, applied=1),
            measures={},
            files=(),
            transaction=self._transaction(plan),
            epoch=self.epoch,
        )

    def _transaction(self, plan: PartitionPlan) -> Opened | None:
        if plan.producer is None or plan.partition not in self.opened:
            return None
        return Opened(replace(plan.producer, opened=True), (plan.partition,))


def driver_of(given: Application, jobs: Jobs, **wiring: Any) -> OperatorDriver:
    """A driver that has not started yet."""
    spark: Any = SimpleNamespace(sparkContext=None)
    with patch.object(drivers, "jobs_of", lambda _wiring: jobs):
        return OperatorDriver(Wiring(spark=spark, application=given, name=NAME, **wiring))


def use_broker(monkeypatch: pytest.MonkeyPatch, broker: ScriptedKafka) -> None:
    """Let every Kafka client of this process talk to that broker."""
    monkeypatch.setattr(kafka_client, "KafkaClient", lambda _options: broker)
    monkeypatch.setattr(kafka_client, "_clients", {})
