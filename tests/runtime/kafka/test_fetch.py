"""Reading what librdkafka wrote, through the real broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import IncrementalAlterConfigsRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from tests.patience import wait_for
from tests.runtime.kafka.peers import columns, send, transactional, write
from tidegate.contracts.errors import EngineError, StateError
from tidegate.contracts.records import Row
from tidegate.devkit.embedded_broker import Broker
from tidegate.kernels.record_format.record_batch import encode, encode_headers
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.kafka.fetch import Range, decode_any, fetch, fetch_together
from tidegate.runtime.kafka.offsets import earliest, latest, stable

NewTopic = Callable[..., str]

TIME = 1_700_000_000_000
NOT_LEADER = 6


@pytest.fixture
def kafka(broker: Broker) -> KafkaClient:
    return client({"bootstrap.servers": broker.bootstrap})


class Counting(KafkaClient):
    """A client that counts its requests."""

    requests = 0

    def send_all(self, requests: Sequence[tuple[Any, int | None]], *, timeout_s: float | None = None) -> list[Any]:
        self.requests += len(requests)
        return super().send_all(requests, timeout_s=timeout_s)


def row(value: bytes | None, offset: int = 0, key: bytes | None = b"k", headers: bytes = b"") -> Row:
    return Row(key, value, TIME + offset, offset, headers)


def values(start: int, end: int) -> list[Row]:
    return [row(b"v%d" % offset, offset) for offset in range(start, end)]


def everything(kafka: KafkaClient, topic: str, start: int = 0, **options: Any) -> list[Row]:
    end = stable(kafka, topic)[0]
    fetched = fetch(kafka, topic, 0, start, end, **({"max_bytes": 2**26, "deadline_s": 30.0} | options))
    assert fetched.next_offset == end
    return fetched.records.rows()


@pytest.mark.broker
def test_ranges_of_several_partitions_come_with_one_answer_each_whole_or_not_at_all(
    broker: Broker, topic: NewTopic
) -> None:
    name, kafka = topic(4), Counting({"bootstrap.servers": broker.bootstrap})
    for partition in range(3):
        write(broker.bootstrap, name, values(0, 9), partition=partition)
    big = [row(b"x" * 900_000, offset) for offset in range(2)]
    for one in big:
        write(broker.bootstrap, name, [one], partition=3)
    kafka.leaders(name)
    kafka.requests = 0
    ranges = [Range(0, 2, 9), Range(1, 0, 4), Range(2, 20, 30), Range(3, 0, 2)]
    found = fetch_together(kafka, name, ranges, max_bytes=2**20, deadline_s=30)
    assert kafka.requests == 1
    assert {partition: each.records.rows() for partition, each in found.items()} == {0: values(2, 9), 1: values(0, 4)}
    assert (found[0].next_offset, found[1].next_offset) == (9, 4)
    assert found[0].epoch == fetch(kafka, name, 0, 2, 9, max_bytes=2**20, deadline_s=30).epoch >= 0


@pytest.mark.broker
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_of_librdkafka_is_read(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, compression: str
) -> None:
    name = topic(max_message_bytes="3000000")
    both = encode_headers([(b"trace", b"\x00\xff"), (b"trace", None), (b"", b"")])
    written = [
        row(b"v", 0, headers=both),
        row(None, 1),
        row(b"", 2, key=None),
        row(b"x" * 1_000_000, 3, key=b""),
        row(bytes(range(256)) * 4, 4),
    ]
    write(broker.bootstrap, name, written, compression_type=compression, message_max_bytes=2_000_000)
    assert everything(kafka, name) == written


@pytest.mark.broker
def test_a_range_may_begin_and_end_inside_a_batch(kafka: KafkaClient, broker: Broker, topic: NewTopic) -> None:
    name = topic()
    write(broker.bootstrap, name, values(0, 50))
    fetched = fetch(kafka, name, 0, 7, 31, max_bytes=2**20, deadline_s=30)
    assert (fetched.records.rows(), fetched.next_offset) == (values(7, 31), 31)
    nothing = fetch(kafka, name, 0, 31, 31, max_bytes=2**20, deadline_s=30)
    assert (len(nothing.records), nothing.next_offset) == (0, 31)


@pytest.mark.broker
def test_a_fetch_stops_after_the_batch_that_reaches_the_limit_and_the_next_continues_there(
    kafka: KafkaClient, broker: Broker, topic: NewTopic
) -> None:
    name = topic()
    for start in range(0, 100, 10):
        write(broker.bootstrap, name, values(start, start + 10))
    position, pieces, found = 0, 0, []
    while position < 100:
        fetched = fetch(kafka, name, 0, position, 100, max_bytes=600, deadline_s=30)
        assert fetched.next_offset % 10 == 0
        position, pieces, found = fetched.next_offset, pieces + 1, found + fetched.records.rows()
    assert found == values(0, 100)
    assert pieces > 3


@pytest.mark.broker
def test_several_answers_are_joined_in_one_buffer(kafka: KafkaClient, broker: Broker, topic: NewTopic) -> None:
    name = topic(max_message_bytes="20000000")
    written = [row(bytes([65 + offset]) * 9_000_000, offset) for offset in range(8)]  # 72 MB: a broker gives 55 at once
    for one in written:
        write(broker.bootstrap, name, [one], message_max_bytes=10_000_000)
    assert everything(kafka, name, max_bytes=2**28) == written


@pytest.mark.broker
def test_aborted_transactions_of_librdkafka_are_invisible_and_open_ones_are_waited_for(
    kafka: KafkaClient, broker: Broker, topic: NewTopic
) -> None:
    #  0-2 committed | 3 marker | 4-5 aborted | 6 marker | 7 open | 8 plain
    name = topic()
    producer = transactional(broker.bootstrap)
    producer.begin_transaction()
    send(producer, name, values(0, 3))
    producer.commit_transaction(30)
    producer.begin_transaction()
    send(producer, name, values(4, 6))
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    send(producer, name, values(7, 8))
    producer.flush(30)
    write(broker.bootstrap, name, values(8, 9))
    assert (stable(kafka, name)[0], latest(kafka, name)[0]) == (7, 9)
    assert everything(kafka, name) == values(0, 3)
    producer.commit_transaction(30)
    wait_for(lambda: stable(kafka, name)[0] == 10)
    assert everything(kafka, name) == values(0, 3) + values(7, 9)
    assert everything(kafka, name, start=5) == values(7, 9)


@pytest.mark.broker
def test_transactions_of_two_producers_interleave(kafka: KafkaClient, broker: Broker, topic: NewTopic) -> None:
    name = topic()
    kept, dropped = transactional(broker.bootstrap), transactional(broker.bootstrap)
    kept.begin_transaction()
    dropped.begin_transaction()
    for start in range(0, 20, 2):
        send(dropped, name, [row(b"aborted", start)])
        dropped.flush(30)
        send(kept, name, values(start + 1, start + 2))
        kept.flush(30)
    dropped.abort_transaction(30)
    kept.commit_transaction(30)
    wait_for(lambda: stable(kafka, name)[0] == 22)
    assert everything(kafka, name) == [one for start in range(1, 20, 2) for one in values(start, start + 1)]


@pytest.mark.broker
def test_a_topic_of_log_append_time_gives_the_broker_s_times(
    kafka: KafkaClient, broker: Broker, topic: NewTopic
) -> None:
    name = topic(message_timestamp_type="LogAppendTime")
    write(broker.bootstrap, name, [row(b"v", 0)._replace(timestamp=5), row(b"w", 1)._replace(timestamp=6)])
    found = everything(kafka, name)
    assert [one.value for one in found] == [b"v", b"w"]
    assert min(one.timestamp for one in found) > TIME


@pytest.mark.broker
def test_a_compacted_topic_is_read_across_its_gaps(kafka: KafkaClient, broker: Broker, topic: NewTopic) -> None:
    _clean_at_once(kafka)
    name = topic(cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.001")
    for start in range(0, 3000, 500):  # 6 keys, 500 versions each, in segments of about 1000
        rows = [row(b"x" * 1000, offset, key=b"%d" % (start // 500)) for offset in range(start, start + 500)]
        write(broker.bootstrap, name, rows)
    wait_for(lambda: len(everything(kafka, name)) < 2500)
    found = everything(kafka, name)
    gap = next(one.offset for one in found if one.offset > 0)
    assert gap > 1 or found[0].offset > 0
    assert {one.key for one in found} == {b"%d" % key for key in range(6)}
    assert found[-1].offset == 2999
    assert fetch(kafka, name, 0, 0, 10, max_bytes=2**20, deadline_s=30).next_offset == 10


@pytest.mark.broker
def test_records_deleted_before_they_were_read_are_a_state_error_that_names_the_range(
    kafka: KafkaClient, broker: Broker, topic: NewTopic
) -> None:
    name = topic()
    write(broker.bootstrap, name, values(0, 20))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [deleted] = admin.delete_records([TopicPartition(name, 0, 12)]).values()
    deleted.result(30)
    assert earliest(kafka, name) == {0: 12}
    with pytest.raises(StateError, match=f"{name}/0 no longer has offset 3") as lost:
        fetch(kafka, name, 0, 3, 20, max_bytes=2**20, deadline_s=30)
    assert "its first offset is 12: the records between were deleted" in str(lost.value)
    assert everything(kafka, name, start=12) == values(12, 20)


class Flaky(KafkaClient):
    """Fails first: once by silence, once by asking a broker that says it is not the leader."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.failures: list[str] = []

    def send_all(self, requests: Sequence[Any], *, timeout_s: float | None = None) -> list[Any]:
        if requests[0][0].name != "FetchRequest" or len(self.failures) == 2:
            return super().send_all(requests, timeout_s=timeout_s)
        if not self.failures:
            self.failures.append("silence")
            self.close()
            return [EngineError("no answer")]
        self.failures.append("not leader")
        [answer] = super().send_all(requests, timeout_s=timeout_s)
        answer.responses[0].partitions[0].error_code = NOT_LEADER
        return [answer]


@pytest.mark.broker
def test_lost_responses_and_a_change_of_leader_cost_only_time(broker: Broker, topic: NewTopic) -> None:
    name, flaky = topic(), Flaky({"bootstrap.servers": broker.bootstrap})
    write(broker.bootstrap, name, values(0, 9))
    assert everything(flaky, name) == values(0, 9)
    assert flaky.failures == ["silence", "not leader"]
    flaky.close()


@pytest.mark.broker
def test_a_missed_deadline_is_an_engine_error(kafka: KafkaClient, broker: Broker, topic: NewTopic) -> None:
    name = topic()
    write(broker.bootstrap, name, values(0, 3))
    with pytest.raises(EngineError, match=f"offsets 3 to 9 of {name}/0 did not arrive in time"):
        fetch(kafka, name, 0, 0, 9, max_bytes=2**20, deadline_s=0.7)


@pytest.mark.broker
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_batch_names_its_partition(broker: Broker, topic: NewTopic) -> None:
    class Damaging(KafkaClient):
        def send_all(self, requests: Sequence[Any], *, timeout_s: float | None = None) -> list[Any]:
            answers = super().send_all(requests, timeout_s=timeout_s)
            if requests[0][0].name == "FetchRequest":
                found = answers[0].responses[0].partitions[0]
                found.records = found.records[:-1] + b"?"
            return answers

    name, damaging = topic(), Damaging({"bootstrap.servers": broker.bootstrap})
    write(broker.bootstrap, name, values(0, 3))
    with pytest.raises(EngineError, match=f"{name}/0: a record batch is damaged: its checksum is wrong"):
        fetch(damaging, name, 0, 0, 3, max_bytes=2**20, deadline_s=30)
    damaging.close()


@pytest.mark.fast
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [0, 1])
def test_batches_older_than_magic_2_are_read_too(magic: int, compression: int) -> None:
    builder = MemoryRecordsBuilder(magic, compression, 2**20, offset=3)
    for one in values(3, 6):
        builder.append(one.timestamp if magic else None, one.key, one.value)
    builder.close()
    [newer] = encode(
        columns([row(b"new")]), None, producer_id=1, producer_epoch=0, base_sequence=0, max_batch_bytes=9_999
    )
    raw = bytes(builder.buffer()) + (6).to_bytes(8, "big") + newer.data[8:]
    decoded = decode_any(raw, 4, 99, [])
    expected = [one if magic else one._replace(timestamp=-1) for one in values(4, 6)]
    assert decoded.records.rows() == [*expected, row(b"new")._replace(offset=6)]
    assert (decoded.next_offset, decoded.bytes_used) == (7, len(raw))


def _clean_at_once(kafka: KafkaClient) -> None:
    """The brokers' log cleaners look for work ten times a second, not every 15 s."""
    request = IncrementalAlterConfigsRequest
    config = request.AlterConfigsResource.AlterableConfig(
        name="log.cleaner.backoff.ms", config_operation=0, value="100"
    )
    resource = request.AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = kafka.send(request(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == 0, answer
