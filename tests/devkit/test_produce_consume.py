"""Records into and out of topics, against the embedded broker."""

from __future__ import annotations

import itertools
import json

import pytest
from confluent_kafka import Producer

from tests.conftest import NewTopic
from tidegate.contracts.errors import OutputTooLarge, UserError
from tidegate.devkit.embedded_broker import Broker
from tidegate.devkit.produce_consume import (
    consume,
    produce_lines,
    read_all,
    write_all,
)
from tidegate.devkit.record_lines import Record

pytestmark = pytest.mark.broker


@pytest.fixture
def options(broker: Broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


def test_records_are_consumed_as_produced_with_their_event_times(options: dict[str, str], topic: NewTopic) -> None:
    name = topic(2)
    lines = [
        '{"key": "a", "value": "1", "timestamp": 1000, "partition": 1, "headers": [{"key": "h", "value": "x"}]}',
        '{"key": "a", "value": null, "timestamp": 500, "partition": 1}',
        '{"key": null, "value_base64": "/w==", "timestamp": 2000, "partition": 0}',
    ]
    assert produce_lines(options, name, lines, _never) == 3
    assert sorted(consume(options, name), key=lambda record: (record.partition, record.offset)) == [
        Record(key=None, value=b"\xff", timestamp=2000, partition=0, offset=0),
        Record(key=b"a", value=b"1", timestamp=1000, partition=1, offset=0, headers=(("h", b"x"),)),
        Record(key=b"a", value=None, timestamp=500, partition=1, offset=1),
    ]


def test_an_invalid_line_is_reported_with_its_number_and_the_others_are_processed(
    options: dict[str, str], topic: NewTopic
) -> None:
    name = topic(2, max_message_bytes="2000")
    told: dict[int, str] = {}
    large = json.dumps({"key": "large", "value": "x" * 5000})
    lines = ['{"key": "a"}', "oops", "", '{"key": "a", "partition": 2}', large, "{}", '{"key": "b"}']
    assert produce_lines(options, name, lines, told.__setitem__) == 2
    assert set(told) == {2, 4, 5, 6}
    assert "no partition 2" in told[4]
    assert {record.key for record in consume(options, name)} == {b"a", b"b"}


def test_records_of_aborted_or_open_transactions_are_not_read(
    broker: Broker, options: dict[str, str], topic: NewTopic
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions()
    for value, end in [(b"1", producer.commit_transaction), (b"2", producer.abort_transaction), (b"3", None)]:
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush()
        if end:
            end()
    assert [record.value for record in consume(options, name)] == [b"1"]
    producer.abort_transaction()
    assert [record.value for record in consume(options, name)] == [b"1"]


def test_reading_starts_at_an_offset_of_a_partition_and_ends_at_a_limit(
    options: dict[str, str], topic: NewTopic
) -> None:
    name = topic(2)
    write_all(options, name, [(p, None, b"%d" % i, i) for i in range(5) for p in range(2)])
    assert [r.value for r in consume(options, name, partition=1, offset=3)] == [b"3", b"4"]
    assert [r.value for r in consume(options, name, partition=0, limit=2)] == [b"0", b"1"]
    assert list(consume(options, topic())) == []


def test_following_continues_with_records_written_later(options: dict[str, str], topic: NewTopic) -> None:
    name = topic()
    following = consume(options, name, follow=True)
    write_all(options, name, [(0, b"k", b"1", 1)])
    assert next(following).value == b"1"
    write_all(options, name, [(0, b"k", b"2", 2)])
    assert next(following).value == b"2"


def test_a_whole_topic_is_read_by_partition(options: dict[str, str], topic: NewTopic) -> None:
    name = topic(3)
    written = [(i % 2, b"%d" % i, None if i % 5 == 0 else b"v", 10 * i) for i in range(1000)]
    assert write_all(options, name, written) == 1000
    by_partition = {p: [r[1:] for r in group] for p, group in itertools.groupby(sorted(written), lambda r: r[0])}
    assert [sorted(rows) for rows in read_all(options, name)[:2]] == [sorted(by_partition[p]) for p in (0, 1)]
    assert [timestamp for _, _, timestamp in read_all(options, name)[0]] == list(range(0, 10_000, 20))
    assert read_all(options, name)[2] == []


def test_a_record_that_is_too_large_is_refused_before_anything_is_written(
    options: dict[str, str], topic: NewTopic
) -> None:
    name = topic(1, max_message_bytes="1000")
    with pytest.raises(OutputTooLarge):
        write_all(options, name, [(0, b"k", b"v", 1), (0, b"k", b"v" * 5000, 1)])
    assert read_all(options, name) == [[]]


def test_a_missing_topic_is_a_user_error_for_every_use(options: dict[str, str]) -> None:
    for use in (
        lambda: write_all(options, "absent", [(0, b"k", b"v", 1)]),
        lambda: read_all(options, "absent"),
        lambda: produce_lines(options, "absent", ["{}"], _never),
        lambda: list(consume(options, "absent")),
    ):
        with pytest.raises(UserError, match="does not exist"):
            use()


def test_a_missing_partition_or_offset_is_a_user_error(options: dict[str, str], topic: NewTopic) -> None:
    name = topic()
    with pytest.raises(UserError, match="no such partition"):
        next(consume(options, name, partition=1))
    with pytest.raises(UserError, match="no such offset"):
        next(consume(options, name, offset=7, follow=True))


def _never(number: int, cause: str) -> None:
    raise AssertionError((number, cause))
