"""Write whole columns of records to a partition, without a transaction: for loads, the demo and tests."""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest

from tidegate.kernels.record_format.record_batch import OutgoingColumns, encode
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.request_retries import (
    Deadline,
    error_for,
    is_retriable,
    timed_out,
)

_ALL_REPLICAS = -1
_NO_PRODUCER = -1
_VERSION = 9
"""The oldest version with flexible fields: it names topics and needs no transaction."""


def write_columns(client: KafkaClient, topic: str, partition: int, columns: OutgoingColumns, deadline_s: float) -> int:
    """Write the records to the partition, in order, and return their number.

    Raises OutputTooLarge before anything is written. Raises EngineError if the deadline has passed, or if a broker did
    not answer: the request without an answer may have been written.
    """
    batches = encode(
        columns,
        None,
        producer_id=_NO_PRODUCER,
        producer_epoch=_NO_PRODUCER,
        base_sequence=_NO_PRODUCER,
        max_batch_bytes=client.max_message_bytes(topic),
        transactional=False,
    )
    deadline = Deadline(deadline_s, client.clock)
    for batch in batches:
        _write(client, topic, partition, batch.data, deadline)
    return len(columns.timestamp)


def _write(client: KafkaClient, topic: str, partition: int, batch: bytearray, deadline: Deadline) -> None:
    """Write the batch to the partition. Retry only after an answer that says that it was not written."""
    code, what = 0, f"produce to {topic}/{partition}"
    for _attempt in deadline.attempts():
        request = _request(topic, partition, batch, deadline)
        answer = client.send(request, client.leader(topic, partition, deadline), timeout_s=deadline.remaining_s)
        code = answer.responses[0].partition_responses[0].error_code
        if not code:
            return
        if not is_retriable(code):
            raise error_for(code, what)
        client.forget_leaders(topic)
    raise timed_out(code, what)


def _request(topic: str, partition: int, batch: bytearray, deadline: Deadline) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=_ALL_REPLICAS,
        timeout_ms=int(deadline.remaining_s * 1_000),
        topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=batch)])],
        min_version=_VERSION,
        max_version=_VERSION,
    )
