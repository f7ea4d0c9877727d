"""Checks the broker, and the topics that operators read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import TidegateError
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.next_metadata import first_meta
from tidegate.runtime.doctor.findings import Finding, Findings, of_error, roughly
from tidegate.runtime.kafka.inspection import Cluster, Inspected, inspect
from tidegate.runtime.publishing.topics import configured

SHORTEST_RETENTION_MS = 24 * 3_600_000
"""Shortest retention without a finding: with less, records may be deleted while a failed service waits for repair."""

LONGEST_TRANSACTION_MS = 180_000
"""The transaction timeout of operators, which the broker has to allow."""


@dataclass(frozen=True, kw_only=True)
class OperatorTopics:
    """An operator and its topics.

    `newest`: its newest commit, None before the first. `now_ms`: the wall clock. `by_keys`: the numbers of partitions
    of topics in which keys decide the partition, whichever operator writes them.
    """

    name: str
    config: OperatorConfig
    topics: Mapping[str, Inspected]
    newest: BatchMeta | None
    now_ms: int
    by_keys: Mapping[str, int]

    @property
    def input(self) -> Inspected | None:
        """Return the input topic, or the first of several; None if it does not exist."""
        return self.topics.get(self.config.input)

    @property
    def inputs(self) -> list[Inspected]:
        """Return those of the operator's input topics that exist."""
        return [self.topics[name] for name in self.config.inputs if name in self.topics]

    @property
    def outputs(self) -> list[Inspected]:
        """Return those of the operator's output topics that exist."""
        return [self.topics[name] for name in configured(self.config).topics if name in self.topics]

    def finding(self, problem: str, value: object, remedy: str) -> Finding:
        """Return a finding about this operator."""
        return Finding(about=self.name, problem=problem, value=str(value), remedy=remedy)


def collect(options: Mapping[str, str], operators: Mapping[str, OperatorConfig]) -> Cluster | TidegateError:
    """Return the cluster with the operators' topics, or the error if it cannot be read."""
    names = {name for config in operators.values() for name in (*config.inputs, *configured(config).topics)}
    try:
        return inspect(options, sorted(names))
    except TidegateError as error:
        return error


def broker_allows_the_transactions(cluster: Cluster) -> Findings:
    """Check that the broker allows the transaction timeout of operators."""
    longest = int(cluster.settings.get("transaction.max.timeout.ms", LONGEST_TRANSACTION_MS))
    if longest < LONGEST_TRANSACTION_MS:
        yield Finding(
            about="kafka",
            problem="the broker's limit for transaction timeouts is too low for operators",
            value=f"transaction.max.timeout.ms={longest}",
            remedy=f"set transaction.max.timeout.ms of the brokers to at least {LONGEST_TRANSACTION_MS}",
        )


def topics_exist(operator: OperatorTopics) -> Findings:
    """Check that every topic exists."""
    config = operator.config
    for name in (*config.inputs, *configured(config).topics):
        if name not in operator.topics:
            partitions = operator.by_keys.get(name, operator.input and operator.input.partitions)
            wanted = f" --partitions {partitions}" if partitions else ""
            yield operator.finding("a topic does not exist", name, f"tidegate topics create {name}{wanted}")


def topics_are_those_of_the_log(operator: OperatorTopics) -> Findings:
    """Check that the topics are those of the newest commit, not re-created, with matching numbers of partitions."""
    found = [*operator.inputs, *operator.outputs]
    if len(found) < len(operator.config.inputs) + len(configured(operator.config).topics):
        return
    now = preflight.Topics(
        ids={topic.name: topic.id for topic in found}, partitions={topic.name: topic.partitions for topic in found}
    )
    before = operator.newest or first_meta(operator.name, "", 0, {operator.config.input: {}})
    try:
        preflight.check_topics(before, operator.config, now)
    except TidegateError as error:
        yield of_error(operator.name, error)


def nothing_was_deleted_unread(operator: OperatorTopics) -> Findings:
    """Check that no records were deleted before they were read."""
    if operator.newest is None:
        return
    try:
        preflight.check_nothing_lost(operator.newest, {topic.name: topic.starts for topic in operator.inputs})
    except TidegateError as error:
        yield of_error(operator.name, error)


def input_keeps_records_long_enough(operator: OperatorTopics) -> Findings:
    """Check that the inputs' retention is long enough, so that no records are deleted before they are read."""
    for topic in operator.inputs:
        if (retention := _retention_ms(topic)) is not None:
            yield from _kept_long_enough(operator, topic, retention)


def _kept_long_enough(operator: OperatorTopics, topic: Inspected, retention: int) -> Findings:
    keep = f"set retention.ms=-1 for topic {topic.name}, or to more than the longest outage of the service"
    if retention < SHORTEST_RETENTION_MS:
        shown = f"retention.ms={retention} ({roughly(retention)})"
        yield operator.finding("the input topic keeps records for too short a time", shown, keep)
    oldest = _oldest_stream_time(operator.newest)
    if oldest is not None and oldest < operator.now_ms - retention:
        behind = roughly(operator.now_ms - oldest)
        problem = "the input's event times are older than its retention: the broker may delete records unread"
        yield operator.finding(problem, f"stream time {behind} ago, retention.ms={retention}", keep)


def _retention_ms(topic: Inspected | None) -> int | None:
    """Return the topic's retention in ms; None if it does not exist or does not delete records by age."""
    if topic is None or "delete" not in topic.settings.get("cleanup.policy", "delete"):
        return None
    retention = int(topic.settings.get("retention.ms", -1))
    return None if retention < 0 else retention


def _oldest_stream_time(newest: BatchMeta | None) -> int | None:
    known = [] if newest is None else [each.stream_time for each in newest.partitions.values() if each.stream_time >= 0]
    return min(known, default=None)


def input_keeps_every_record(operator: OperatorTopics) -> Findings:
    """Check that the input is not compacted, unless only the newest record of a key matters."""
    table = operator.config.as_table()
    if table is not None and table.history_retention is None:
        return
    for topic in operator.inputs:
        if "compact" not in topic.settings.get("cleanup.policy", ""):
            continue
        remedy = f"set cleanup.policy=delete for topic {topic.name}"
        problem = "the input is compacted: records of a key are dropped before they are read"
        yield operator.finding(problem, f"cleanup.policy={topic.settings['cleanup.policy']}", remedy)


def input_has_event_times(operator: OperatorTopics) -> Findings:
    """Check that the broker keeps producers' timestamps, if the record's timestamp is the event time."""
    for topic in operator.inputs if operator.config.timestamp is None else ():
        if (setting := topic.settings.get("message.timestamp.type")) != "LogAppendTime":
            continue
        remedy = (
            f"set message.timestamp.type=CreateTime for topic {topic.name}, "
            "or name the field with the event time: timestamp: {field: ...}"
        )
        problem = "the broker replaces the input's timestamps by the arrival time"
        yield operator.finding(problem, f"message.timestamp.type={setting}", remedy)


def outputs_take_records_as_large(operator: OperatorTopics) -> Findings:
    """Check that the output topics accept records as large as the input's."""
    largest = max(map(_largest_bytes, operator.inputs), default=0)
    for outlet in operator.outputs:
        if (takes := _largest_bytes(outlet)) < largest:
            shown = f"max.message.bytes={takes}, the input's is {largest}"
            problem = f"topic {outlet.name} accepts only smaller records than the input"
            yield operator.finding(
                problem, shown, f"set max.message.bytes={largest} for topic {outlet.name}, and more for a join"
            )


def _largest_bytes(topic: Inspected) -> int:
    return int(topic.settings.get("max.message.bytes", 0))


def outputs_keep_old_event_times(operator: OperatorTopics) -> Findings:
    """Check that output is not deleted at once because its event times are older than the output topic's retention."""
    oldest = _oldest_stream_time(operator.newest)
    for outlet in operator.outputs:
        retention = _retention_ms(outlet)
        if oldest is not None and retention is not None and oldest < operator.now_ms - retention:
            problem = (
                f"topic {outlet.name} deletes output at once, because its event times are older than the retention"
            )
            shown = f"stream time {roughly(operator.now_ms - oldest)} ago, retention.ms={retention}"
            yield operator.finding(problem, shown, f"set retention.ms=-1 for topic {outlet.name}")


def table_has_as_many_partitions(operator: OperatorTopics, of_table: Inspected | None) -> Findings:
    """Check that an operator's input and the input of its table have the same number of partitions.

    Records of a partition are joined with the table's versions in the partition of the same number.
    """
    if operator.input is not None and of_table is not None and operator.input.partitions != of_table.partitions:
        shown = f"{operator.input.name}: {operator.input.partitions}, {of_table.name}: {of_table.partitions}"
        yield operator.finding(
            "the operator and its table have different numbers of partitions",
            shown,
            "give both topics the same number of partitions; give the operator a new name if it has a log",
        )


CLUSTER_CHECKS: Sequence[Callable[[Cluster], Findings]] = (broker_allows_the_transactions,)
CHECKS: Sequence[Callable[[OperatorTopics], Findings]] = (
    topics_exist,
    topics_are_those_of_the_log,
    nothing_was_deleted_unread,
    input_keeps_records_long_enough,
    input_keeps_every_record,
    input_has_event_times,
    outputs_take_records_as_large,
    outputs_keep_old_event_times,
)
