"""Other clients on the other side, for tests: confluent-kafka writes and reads, kafka-python looks at groups."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence

import confluent_kafka
import kafka
import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition
from kafka import KafkaConsumer

from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_batch import (
    OutgoingColumns,
    Stamp,
    decode_headers,
    encode_headers,
)

_numbers = itertools.count()


def unused(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def write(bootstrap: str, topic: str, rows: Sequence[Row], *, partition: int = 0, **options: object) -> None:
    """The rows stand in the partition, written by librdkafka."""
    producer = confluent_kafka.Producer(_dotted({"bootstrap_servers": bootstrap, "linger_ms": 50} | options))
    send(producer, topic, rows, partition=partition)
    assert producer.flush(30) == 0


def transactional(bootstrap: str) -> confluent_kafka.Producer:
    """A transactional producer of librdkafka, ready to begin."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": unused("librdkafka")})
    producer.init_transactions(30)
    return producer


def send(producer: confluent_kafka.Producer, topic: str, rows: Sequence[Row], *, partition: int = 0) -> None:
    """The rows are on their way."""
    failures: list[object] = []
    report: Callable[..., None] = lambda error, _message: failures.append(error) if error else None  # noqa: E731
    for row in rows:
        headers = [(name.decode(), value) for name, value in decode_headers(row.headers)]
        place = {"partition": partition, "timestamp": row.timestamp, "on_delivery": report}
        producer.produce(topic, row.value, row.key, headers=headers or None, **place)
    assert not failures


def read(bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed") -> list[Row]:
    """Everything a consumer of librdkafka sees in the partition, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unused("reader"),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
    rows = []
    while (message := consumer.poll(30)) is not None:
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return rows
        rows.append(_row(message))
    raise AssertionError(f"{topic}/{partition} does not end")


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> tuple[int, str | None]:
    """Offset and metadata of a group, as kafka-python sees them; librdkafka's metadata may end in other memory."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    found = consumer.committed(kafka.TopicPartition(topic, partition), metadata=True)
    consumer.close()
    return found.offset, found.metadata


def columns(rows: Sequence[Row]) -> OutgoingColumns:
    """The rows as emissions."""
    return OutgoingColumns(
        key=pa.array([row.key for row in rows], pa.binary()),
        value=pa.array([row.value for row in rows], pa.binary()),
        headers=pa.array([row.headers or None for row in rows], pa.binary()),
        timestamp=np.array([row.timestamp for row in rows], np.int64),
    )


def stamp(count: int, batch: int = 1, operator: str = "op") -> Stamp:
    """A stamp for that many emissions, all of cause `time`."""
    codes = np.zeros(count, np.int8)
    return Stamp(operator=operator, batch=batch, seq=np.arange(len(codes)), cause_codes=codes, causes=["time"])


def _row(message: Message) -> Row:
    block = encode_headers([(name.encode(), value) for name, value in message.headers() or []])
    return Row(message.key(), message.value(), message.timestamp()[1], message.offset(), block)


def _dotted(options: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in options.items()}
