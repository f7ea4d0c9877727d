"""Write records to topics and read them back, for tools, the demo and tests; services do not use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from tidegate.contracts.errors import UserError
from tidegate.devkit.bulk_load import write_columns
from tidegate.devkit.record_lines import BadLine, Record, parse_line
from tidegate.kernels.record_format.record_batch import OutgoingColumns
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.kafka.fetch import fetch
from tidegate.runtime.kafka.offsets import earliest, stable
from tidegate.runtime.kafka.options import kafka_python_options
from tidegate.runtime.kafka.topics import describe_topics, explained, max_message_bytes

_BATCH_BYTES = 256 * 1024
_FETCH_BYTES = 8 * 1024 * 1024
_DEADLINE_S = 120.0
_CONSUMER = {
    "group_id": None,
    "isolation_level": "read_committed",
    "auto_offset_reset": "none",
    "max_partition_fetch_bytes": 8 * 1024 * 1024,
    "max_poll_records": 10_000,
}
_POLL_MS = 200

Complain = Callable[[int, str], None]


def produce_lines(options: Mapping[str, str], topic: str, lines: Iterable[str | bytes], complain: Complain) -> int:
    """Produce each line as a record and return how many the topic accepted: all lines but the bad ones.

    `complain(line number from 1, cause)` is called for each line that is not a record and for each record that Kafka
    rejects; the other lines are produced all the same. Empty lines are skipped.
    """
    with _delivery(options, topic, complain) as delivery:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                delivery.send_line(number, line)
    return delivery.taken


def write_all(
    options: Mapping[str, str], topic: str, records: Iterable[tuple[int, bytes | None, bytes | None, int]]
) -> int:
    """Write all records (partition, key, value, timestamp in ms) in order, and return their number.

    For many records: they are written as columns, as fast as services write. Raises what `write_columns` raises.
    """
    by_partition: dict[int, list[tuple[bytes | None, bytes | None, int]]] = {}
    for partition, key, value, timestamp in records:
        by_partition.setdefault(partition, []).append((key, value, timestamp))
    return sum(
        write_columns(client(options), topic, partition, _columns(rows), _DEADLINE_S)
        for partition, rows in by_partition.items()
    )


def consume(
    options: Mapping[str, str],
    topic: str,
    *,
    partition: int | None = None,
    offset: int | None = None,
    limit: int | None = None,
    follow: bool = False,
) -> Iterator[Record]:
    """Yield the committed records of a topic, in order within each partition, up to its end at the moment of the call.

    All partitions or one; from the beginning or from this offset of each; `limit` records at most. With `follow`, also
    yield records that arrive later, without an end.
    """
    partitions = _chosen(topic, describe_topics(options, [topic])[0].partitions, partition)
    with explained(topic), _consumer(options) as consumer:
        consumer.assign(partitions)
        for at, beginning in consumer.beginning_offsets(partitions).items():
            consumer.seek(at, beginning if offset is None else offset)
        ends = None if follow else consumer.end_offsets(partitions)
        yield from islice(_records(consumer, ends), limit)


def read_all(options: Mapping[str, str], topic: str) -> list[list[tuple[bytes | None, bytes | None, int]]]:
    """Return per partition (key, value, timestamp in ms) of every committed record, in order."""
    ends = stable(client(options), topic)
    return [
        list(_read(client(options), topic, partition, start, ends[partition]))
        for partition, start in sorted(earliest(client(options), topic).items())
    ]


def _read(
    reader: KafkaClient, topic: str, partition: int, start: int, end: int
) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    while start < end:
        fetched = fetch(reader, topic, partition, start, end, max_bytes=_FETCH_BYTES, deadline_s=_DEADLINE_S)
        yield from ((row.key, row.value, row.timestamp) for row in fetched.records.rows())
        start = fetched.next_offset


def _columns(rows: list[tuple[bytes | None, bytes | None, int]]) -> OutgoingColumns:
    keys, values, timestamps = zip(*rows, strict=True)
    return OutgoingColumns(
        key=pa.array(keys, pa.binary()),
        value=pa.array(values, pa.binary()),
        headers=pa.nulls(len(rows), pa.binary()),
        timestamp=np.array(timestamps, np.int64),
    )


class _Delivery:
    """An asynchronous producer of records, which counts those that Kafka accepted."""

    def __init__(self, producer: KafkaProducer, topic: str, partitions: int, complain: Complain) -> None:
        self._producer, self._topic, self._partitions, self._complain = producer, topic, partitions, complain
        self.taken = 0

    def send_line(self, number: int, line: str | bytes) -> None:
        """Send the record of the line, or complain about the line."""
        try:
            record = parse_line(line)
        except BadLine as cause:
            self._complain(number, str(cause))
        else:
            self.send(number, record)

    def send(self, number: int, record: Record) -> None:
        """Send the record, or complain about it."""
        try:
            sent = self._sent(record)
        except (ValueError, KafkaError) as cause:
            self._complain(number, str(cause))
        else:
            sent.add_callback(self._took)
            sent.add_errback(lambda cause: self._complain(number, str(cause)))

    def _sent(self, record: Record) -> Any:
        if record.partition is not None and record.partition >= self._partitions:
            raise ValueError(f"the topic has no partition {record.partition}, only {self._partitions} from 0")
        return self._producer.send(
            self._topic,
            key=record.key,
            value=record.value,
            partition=record.partition,
            timestamp_ms=record.timestamp,
            headers=list(record.headers),
        )

    def _took(self, _metadata: object) -> None:
        self.taken += 1


@contextmanager
def _delivery(options: Mapping[str, str], topic: str, complain: Complain) -> Iterator[_Delivery]:
    """Yield a delivery to an existing topic, and wait at the end until each record is accepted or complained about."""
    (described,) = describe_topics(options, [topic])
    with explained(topic):
        producer = _producer(options, max_message_bytes(options, topic))
        try:
            yield _Delivery(producer, topic, described.partitions, complain)
            producer.flush()
        finally:
            producer.close()


def _producer(options: Mapping[str, str], largest_bytes: int) -> KafkaProducer:
    """Return a producer that rejects records that are too large for the topic.

    If the broker rejected one instead, the producer would stop sending altogether.
    """
    batch_size = min(_BATCH_BYTES, largest_bytes)
    return KafkaProducer(
        **kafka_python_options(options), linger_ms=20, batch_size=batch_size, max_request_size=largest_bytes
    )


@contextmanager
def _consumer(options: Mapping[str, str]) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(**kafka_python_options(options), **_CONSUMER)
    try:
        yield consumer
    finally:
        consumer.close()


def _chosen(topic: str, partitions: int, partition: int | None) -> list[TopicPartition]:
    if partition is None:
        return [TopicPartition(topic, number) for number in range(partitions)]
    if partition >= partitions:
        raise UserError("the topic has no such partition", value=partition, remedy=f"0 to {partitions - 1} are there")
    return [TopicPartition(topic, partition)]


def _records(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int] | None) -> Iterator[Record]:
    while ends is None or any(consumer.position(at) < end for at, end in ends.items()):
        for polled in _polled(consumer).values():
            for message in polled:
                yield Record(
                    key=message.key,
                    value=message.value,
                    timestamp=message.timestamp,
                    partition=message.partition,
                    offset=message.offset,
                    headers=tuple(message.headers),
                )


def _polled(consumer: KafkaConsumer) -> Mapping[TopicPartition, list[Any]]:
    try:
        polled: Mapping[TopicPartition, list[Any]] = consumer.poll(timeout_ms=_POLL_MS)
    except OffsetOutOfRangeError as cause:
        raise UserError("the topic has no such offset", value=cause, remedy="choose one inside the topic") from cause
    return polled
