"""What the doctor finds wrong with the broker and the topics, from collected facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.runtime.telemetry.conftest import application, meta
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.runtime.doctor.topics import (
    CHECKS,
    OperatorTopics,
    broker_allows_the_transactions,
    table_has_as_many_partitions,
)
from tidegate.runtime.kafka.inspection import Cluster, Inspected

pytestmark = pytest.mark.fast

DAY_MS = 24 * 3_600_000
NOW_MS = 1_000 * DAY_MS
SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": "1000",
}
INPUT = Inspected(name="in", id="1", partitions=4, starts=dict.fromkeys(range(4), 0), settings=SETTINGS)
OUTPUT = replace(INPUT, name="out", id="2")


def operator(**more: Any) -> OperatorConfig:
    raw = {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "1h"}} | more
    given = {option: value for option, value in raw.items() if value is not None}
    return application(operators={"updates": given}).operators["updates"]


def log(**more: Any) -> Any:
    said: dict[str, Any] = {
        "input": "in",
        "next_offset": dict.fromkeys(range(4), 10),
        "stream_time": dict.fromkeys(range(4), NOW_MS - DAY_MS),
        "topics": {"in": "1", "out": "2"},
    }
    return meta(**said | more)


def between(*topics: Inspected, config: OperatorConfig | None = None, newest: Any = None) -> OperatorTopics:
    """An operator between those topics, in place of the sound ones of their names."""
    found = {topic.name: topic for topic in (INPUT, OUTPUT, *topics)}
    return OperatorTopics(
        name="updates", config=config or operator(), topics=found, newest=newest or log(), now_ms=NOW_MS, by_keys={}
    )


def found(seen: OperatorTopics) -> list[tuple[str, str, str]]:
    return [(each.problem, each.value, each.remedy) for check in CHECKS for each in check(seen)]


def with_settings(topic: Inspected, **settings: str) -> Inspected:
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    return replace(topic, settings=SETTINGS | changed)


def test_valid_topics_have_no_finding_before_and_after_the_first_batch() -> None:
    assert found(between()) == []
    assert found(replace(between(), newest=None)) == []


def test_a_missing_topic_is_reported_with_the_command_that_makes_it() -> None:
    seen = between()
    without_output = replace(seen, topics={"in": INPUT})
    assert found(without_output) == [
        ("a topic does not exist", "out", "tidegate topics create out --partitions 4"),
    ]
    assert [value for _, value, _ in found(replace(seen, topics={}))] == ["in", "out"]


def by_key(partitions: int) -> OperatorConfig:
    raw = {"kind": "pipeline", "until": None, "steps": [{"select_key": "timestamp"}], "output_partitions": partitions}
    return operator(**raw)


def test_a_missing_topic_whose_partitions_keys_decide_is_made_with_as_many_by_its_writer_and_its_reader() -> None:
    writer = replace(between(config=by_key(6)), topics={"in": INPUT}, by_keys={"out": 6})
    reader = replace(between(config=operator(input="out", output=None)), topics={}, by_keys={"out": 6}, newest=None)
    missing = [("a topic does not exist", "out", "tidegate topics create out --partitions 6")]
    assert found(writer) == missing
    assert found(reader) == missing


def test_another_number_of_partitions_than_configured_for_keys_is_reported() -> None:
    assert found(between(replace(OUTPUT, partitions=6), config=by_key(6))) == []
    [finding] = found(between(config=by_key(6)))
    assert finding == (
        "the topic whose partitions keys decide has another number of partitions",
        "out: 4, configured: 6",
        "create out with 6 partitions, or write partitions: 4",
    )


def test_too_few_partitions_of_the_output_are_reported() -> None:
    [(problem, value, remedy)] = found(between(replace(OUTPUT, partitions=2)))
    assert "fewer partitions" in problem
    assert (value, remedy) == ("out: 2, in: 4", "give out at least 4 partitions")


def test_a_re_created_topic_is_reported() -> None:
    [(problem, _, remedy)] = found(between(replace(INPUT, id="9")))
    assert "deleted and created again" in problem
    assert "another name" in remedy


def test_a_different_number_of_partitions_than_the_log_has_is_reported() -> None:
    six = [replace(topic, partitions=6) for topic in (INPUT, OUTPUT)]
    [(problem, value, _)] = found(between(*six))
    assert "a different number of partitions" in problem
    assert value == "6, was 4"


def test_records_that_were_deleted_unread_are_reported_with_the_command_that_accepts_it() -> None:
    [(problem, value, remedy)] = found(between(replace(INPUT, starts={0: 15, 1: 0, 2: 0, 3: 0})))
    assert "deleted before" in problem
    assert value == "partition 0: offsets 10 to 14"
    assert "tidegate skip" in remedy


def test_a_short_retention_of_the_input_is_reported() -> None:
    [(problem, value, remedy)] = found(between(with_settings(INPUT, retention_ms=str(DAY_MS // 24)), newest=fresh()))
    assert "too short a time" in problem
    assert value == "retention.ms=3600000 (1h)"
    assert "retention.ms=-1 for topic in" in remedy


def fresh() -> Any:
    return log(stream_time={0: NOW_MS})


def test_event_times_older_than_the_retention_of_the_input_are_reported() -> None:
    old = log(stream_time={0: NOW_MS - 8 * DAY_MS})
    [(problem, value, remedy)] = found(between(with_settings(INPUT, retention_ms=str(7 * DAY_MS)), newest=old))
    assert "older than its retention" in problem
    assert value == "stream time 8d ago, retention.ms=604800000"
    assert "retention.ms=-1" in remedy


def test_a_retention_of_a_week_is_not_a_finding() -> None:
    assert found(between(with_settings(INPUT, retention_ms=str(7 * DAY_MS)))) == []


def test_an_output_topic_that_deletes_old_event_times_is_reported() -> None:
    old = log(stream_time={0: NOW_MS - 8 * DAY_MS})
    [(problem, _, remedy)] = found(between(with_settings(OUTPUT, retention_ms=str(7 * DAY_MS)), newest=old))
    assert "topic out deletes output at once" in problem
    assert remedy == "set retention.ms=-1 for topic out"


def test_a_compacted_input_is_reported_unless_only_the_latest_values_matter() -> None:
    compacted = with_settings(INPUT, cleanup_policy="compact,delete")
    [(problem, value, remedy)] = found(between(compacted))
    assert "compacted" in problem
    assert (value, remedy) == ("cleanup.policy=compact,delete", "set cleanup.policy=delete for topic in")
    latest = {"kind": "table_history", "input": "in", "versions": "latest"}
    config = application(operators={"updates": latest}).operators["updates"]
    assert found(between(compacted, config=config)) == []


def test_log_append_time_is_reported_unless_a_field_has_the_event_time() -> None:
    arrival = with_settings(INPUT, message_timestamp_type="LogAppendTime")
    [(problem, _, remedy)] = found(between(arrival))
    assert "arrival time" in problem
    assert "timestamp: {field: ...}" in remedy
    assert found(between(arrival, config=operator(timestamp={"field": "at"}))) == []


def test_an_output_for_smaller_records_than_the_input_is_reported() -> None:
    [(problem, value, remedy)] = found(between(with_settings(OUTPUT, max_message_bytes="500")))
    assert "smaller records" in problem
    assert value == "max.message.bytes=500, the input's is 1000"
    assert "max.message.bytes=1000 for topic out" in remedy


def test_a_broker_that_does_not_allow_long_transactions_is_reported() -> None:
    def told(longest: str) -> list[str]:
        cluster = Cluster(topics={}, settings={"transaction.max.timeout.ms": longest})
        return [each.remedy for each in broker_allows_the_transactions(cluster)]

    assert told("900000") == []
    assert told("60000") == ["set transaction.max.timeout.ms of the brokers to at least 180000"]


def test_a_table_with_a_different_number_of_partitions_is_reported() -> None:
    assert list(table_has_as_many_partitions(between(), replace(INPUT, name="weather"))) == []
    [told] = table_has_as_many_partitions(between(), replace(INPUT, name="weather", partitions=2))
    assert told.value == "in: 4, weather: 2"
    assert "the same number" in told.remedy
