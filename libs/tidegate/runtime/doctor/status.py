"""The status of an operator: its position by partition, from log and broker, and why it makes progress or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta, PartitionMeta, consumer_lag
from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.errors import TidegateError, Unavailable
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.current_driver import current_driver
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import PROBE_TIMEOUT_S, client
from tidegate.runtime.kafka.open_transactions import OpenTransaction, open_transactions
from tidegate.runtime.telemetry.batch_metrics import RECENT_MS, Metrics
from tidegate.runtime.telemetry.driver_status import DriverStatus, DriverStatusFile, one_line
from tidegate.runtime.telemetry.explanation import (
    Explanation,
    OperatorFacts,
    PartitionFacts,
    explain_operator,
    explain_partition,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import has_version, metas_since
from tidegate.state.lake.opening import open_lake
from tidegate.state.lease_decisions import DriverLease
from tidegate.state.local.instance import instance_of

AT_ONCE = 8
"""Operators that are asked about at once: most of the time goes by while brokers and the lake answer."""


class LogReader:
    """Reads the logs of an application for its status."""

    def __init__(self, application: Application) -> None:
        self.application = application

    def newest(self, name: str) -> LogVersion | None:
        """Return the log at its newest version; None if there is none yet."""
        lake = open_lake(self.application.lake / name)
        return LogVersion.at(lake, None) if has_version(lake, None) else None

    def since(self, _name: str, log: LogVersion, clock_ms: int) -> Sequence[BatchMeta]:
        """Return the batches since then, as `metas_since` does: only these are read."""
        return metas_since(log, clock_ms)


def application_status(
    application: Application, ends_of: EndsOf | None = None, logs: LogReader | None = None
) -> dict[str, dict[str, Any]]:
    """Return the status of each operator, by name. A broker that does not answer is waited for only once.

    `ends_of`: what is known of a topic; without it the broker is asked. `logs`: what reads the logs.
    """
    known, names = ends_of or from_broker(application), list(application.operators)
    reader = logs or LogReader(application)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="status") as threads:
        found = threads.map(lambda name: _status(reader, name, known), names)
        return dict(zip(names, found, strict=True))


def operator_status(
    application: Application, name: str, ends_of: EndsOf | None = None, logs: LogReader | None = None
) -> dict[str, Any]:
    """Return the operator's status: what its log records, the lag if the broker answers, and why it makes progress or
    not. `ends_of`, `logs`: as for `application_status`.
    """
    return _status(logs or LogReader(application), name, ends_of or from_broker(application))


def from_broker(application: Application) -> EndsOf:
    """Return a function that asks the broker about a topic, or asks no more if none answers now."""
    if error := _broker_error(application):
        return lambda _topic: TopicEnds(error=error)
    return partial(_ends, application)


def _broker_error(application: Application) -> str:
    """Return why no broker answers; empty if one does."""
    try:
        client(application.kafka).probe(PROBE_TIMEOUT_S)
    except TidegateError as error:
        return one_line(error)
    return ""


def _status(logs: LogReader, name: str, ends_of: EndsOf) -> dict[str, Any]:
    application = logs.application
    state = application.state / application.application / name
    driver_status = DriverStatusFile(state).read()
    driver = current_driver(application, name)
    facts = OperatorFacts(driven=driver is not None, status=driver_status, elsewhere=_elsewhere(driver, state))
    try:
        log = logs.newest(name)
        newest = None if log is None else log.newest()
    except Unavailable as error:
        return _without_log(replace(facts, lake_error=one_line(error)), driver, "the lake does not answer")
    topics = application.operators[name].inputs
    if log is None or newest is None or newest.input_topics != list(topics):
        return _without_log(facts, driver, "no log yet: the operator has not run; start it with tidegate run")
    ends = {topic: ends_of(topic) for topic in topics}
    no_answer = next((each.error for each in ends.values() if each.error), "")
    why = explain_operator(replace(facts, kafka_error=no_answer))
    # rule: bounded-by-log-length/status
    recent = logs.since(name, log, newest.clock - RECENT_MS)
    return {
        "log": str(log.place),
        "note": no_answer,
        "why": why._asdict(),
        "condition": _as_json(driver_status),
        "driver": _driver_as_json(driver),
        "epoch": newest.epoch,
        "batch": newest.batch,
        "clock": newest.clock,
        "action": newest.action,
        "partitions": [
            _partition(partition, known, _facts(newest, ends, partition, driver_status), why)
            for partition, known in sorted(newest.partitions.items())
        ],
        "skipped": [
            dict(zip(("batch", "clock", "partition", "from", "to", "topic"), skip, strict=False))
            for skip in newest.skips
        ],
        "tables": [_table(logs, read, newest) for read in application.operators[name].reads()],
        "metrics": _metrics(recent).report(),
    }


def _without_log(facts: OperatorFacts, driver: DriverLease | None, note: str) -> dict[str, Any]:
    """Return the status of an operator whose log is not there, or cannot be read."""
    return {
        "log": None,
        "note": note,
        "why": explain_operator(facts)._asdict(),
        "condition": _as_json(facts.status),
        "driver": _driver_as_json(driver),
    }


def _metrics(metas: Sequence[BatchMeta]) -> Metrics:
    """Return the metrics since the operator's first batch and over the last 60 s, of which these are the batches.

    The newest one before them has the totals.
    """
    before, *recent = metas
    metrics = Metrics.after(before)
    for meta in recent:
        metrics.add(meta)
    return metrics


def _table(logs: LogReader, read: TableRead, newest: BatchMeta) -> dict[str, Any]:
    """Return how far a table that the operator reads is behind the operator.

    `behind_ms`: per partition, by how much the table's stream time is behind the operator's.
    """
    log, pin = logs.newest(read.table), newest.inputs.get(read.table)
    table = None if log is None else log.newest()
    if log is None or table is None:
        return {"name": read.table, "read": pin and pin.version, "version": None}
    behind = {
        partition: max(0, read.time_of(known) - table.partitions[partition].stream_time)
        for partition, known in newest.partitions.items()
        if known.begun and partition in table.partitions  # one of the two may have been rescaled before the other
    }
    found = {"name": read.table, "read": pin and pin.version, "version": log.version}
    return {**found, "clock": table.clock, "behind_ms": behind}


@dataclass(frozen=True, kw_only=True)
class TopicEnds:
    """First offset, last stable offset and end offset of each partition, and the open transactions that block it.

    Empty, with `error` set, if the broker could not be asked.
    """

    first: dict[int, int] = field(default_factory=dict)
    stable: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    blockers: dict[int, list[OpenTransaction]] = field(default_factory=dict)
    error: str = ""

    def of(self, partition: int, offset: int, driver_status: DriverStatus | None) -> PartitionFacts:
        """Return what is known of one partition."""
        return PartitionFacts(
            next_offset=offset,
            first=self.first.get(partition),
            stable=self.stable.get(partition),
            end=self.end.get(partition),
            open_transactions=self.blockers.get(partition, ()),
            unclear=driver_status is not None and partition in driver_status.unclear,
            recovering=driver_status.recovering.get(partition, "") if driver_status is not None else "",
        )


EndsOf = Callable[[str], TopicEnds]
"""A function that says what is known of a topic."""


def _ends(application: Application, topic: str) -> TopicEnds:
    kafka = client(application.kafka)
    try:
        leaders = kafka.topic(topic).leaders
        first, stable, end = (ask(kafka, topic, leaders) for ask in (offsets.earliest, offsets.stable, offsets.latest))
    except TidegateError as error:
        return TopicEnds(error=one_line(error))
    blocked = [partition for partition in end if end[partition] > stable.get(partition, 0)]
    blockers = open_transactions(application.kafka, topic, blocked) if blocked else {}
    return TopicEnds(first=first, stable=stable, end=end, blockers=blockers)


def _facts(
    newest: BatchMeta, ends: Mapping[str, TopicEnds], partition: int, driver_status: DriverStatus | None
) -> dict[str, PartitionFacts]:
    """Return what is known of a partition, by input topic."""
    return {topic: ends[topic].of(partition, own[partition], driver_status) for topic, own in newest.read_to.items()}


def _lag(facts: PartitionFacts) -> int | None:
    return None if facts.stable is None else consumer_lag(facts.stable, facts.next_offset)


def _partition(
    partition: int, known: PartitionMeta, topics: Mapping[str, PartitionFacts], operator: Explanation
) -> dict[str, Any]:
    """Return the status of a partition. Of several input topics, the one that is most behind explains it."""
    lags = {topic: _lag(facts) for topic, facts in topics.items()}
    behind = max(topics, key=lambda topic: lags[topic] or 0)
    by_topic = {
        topic: {"offset": facts.next_offset, "lag": lags[topic], "end": facts.end} for topic, facts in topics.items()
    }
    first, *_ = topics.values()
    return {
        "partition": partition,
        "offset": known.next_offset,
        "lag": None if None in lags.values() else sum(lag or 0 for lag in lags.values()),
        "end": first.end,
        **({"topics": by_topic} if known.further else {}),
        "stream_time": known.stream_time,
        "last_batch": None if known.last is None else known.last[0],
        "why": explain_partition(operator, topics[behind])._asdict(),
        **asdict(known.totals),
    }


def _as_json(driver_status: DriverStatus | None) -> dict[str, Any] | None:
    return None if driver_status is None else asdict(driver_status)


def _elsewhere(driver: DriverLease | None, state: Path) -> str:
    """Return where the driver runs if it does not use this state folder; else ""."""
    return "" if driver is None or driver.instance == instance_of(state) else driver.place


def _driver_as_json(driver: DriverLease | None) -> dict[str, Any] | None:
    if driver is None:
        return None
    return {name: getattr(driver, name) for name in ("host", "process", "since", "clock", "epoch")}
