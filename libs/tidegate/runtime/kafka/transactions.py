"""Kafka transactions: initialise a producer, produce records, commit an offset, and end the transaction.

A `Producer` is a value that holds all that any process needs to continue a transaction. Both versions of Kafka's
transaction protocol are supported (`docs/protocol.md`); the request versions follow from the producer's `version`.
Retriable errors are retried until the deadline, in seconds from the call. After any other error, and after a request
without a response, the only valid next step for the transactional id is `init_producer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeGuard

from kafka.errors import (
    DuplicateSequenceNumberError,
    InvalidProducerEpochError,
    InvalidTimestampError,
    InvalidTransactionTimeoutError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    ProducerFencedError,
    RecordListTooLargeError,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from tidegate.contracts.errors import EngineError, Fenced, OutputTooLarge, TidegateError, UserError
from tidegate.kernels.record_format.record_batch import (
    EncodedBatch,
    OutgoingColumns,
    Stamp,
    encode,
)
from tidegate.runtime.kafka.client import GROUP, TRANSACTION, KafkaClient
from tidegate.runtime.kafka.request_retries import (
    Deadline,
    error_for,
    is_retriable,
    timed_out,
)

INITIALISE_TIMEOUT_S = 60.0

_ALL_REPLICAS = -1
_SEQUENCES = 2**31
_NO_PRODUCER, _NO_EPOCH = -1, -1
_FENCED = (ProducerFencedError.errno, InvalidProducerEpochError.errno)
_TOO_LARGE = (MessageSizeTooLargeError.errno, RecordListTooLargeError.errno)
_LAST_OF_VERSION_1 = {ProduceRequest: 11, TxnOffsetCommitRequest: 4, EndTxnRequest: 4}
_ONLY_OF_VERSION_2 = {ProduceRequest: 12, TxnOffsetCommitRequest: 5, EndTxnRequest: 5}


@dataclass(frozen=True, kw_only=True)
class Producer:
    """The state of a transactional producer, which writes to one partition of each of its topics.

    `opened`: a transaction is open. `sequences`: the next sequence number per topic; 0 for a topic that is not in it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: Literal[1, 2]
    coordinator: int
    opened: bool
    sequences: Mapping[str, int] = field(default_factory=dict)


def init_producer(
    client: KafkaClient, transactional_id: str, *, timeout_ms: int, current: Producer | None = None
) -> Producer:
    """Start a new producer epoch: abort what is open for the transactional id, fence older producers.

    Without `current` the transactional id is taken over from any other producer. With `current` the request carries
    that producer's id and epoch, and Fenced is raised if another producer has taken over since. `timeout_ms`: the
    transaction timeout, after which the broker aborts an open transaction; UserError if the broker does not allow it.
    """
    deadline = Deadline(INITIALISE_TIMEOUT_S, client.clock)
    # rule: own-epoch/asked, transaction-version/producer
    producer = Producer(
        transactional_id=transactional_id,
        producer_id=current.producer_id if current else _NO_PRODUCER,
        epoch=current.epoch if current else _NO_EPOCH,
        version=2 if client.transaction_version() == 2 else 1,
        coordinator=client.coordinator(TRANSACTION, transactional_id, deadline),
        opened=False,
    )
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        min_version=3 if current else 0,
        max_version=5,
    )
    producer, answer = _ask_coordinator(client, producer, request, _initialised, "initialise", deadline)
    return replace(producer, producer_id=answer.producer_id, epoch=answer.producer_epoch)


def _initialised(answer: Any) -> int:
    # rule: own-epoch/fenced
    if answer.error_code in _FENCED:
        raise Fenced(
            "another producer has taken over the transactional id",
            remedy="run one driver only: find and stop the other",
        )
    # rule: timeout-allowed
    if answer.error_code == InvalidTransactionTimeoutError.errno:
        raise UserError(
            "the transaction timeout is longer than the broker allows", remedy="raise its transaction.max.timeout.ms"
        )
    return int(answer.error_code)


def send_emissions(
    client: KafkaClient,
    producer: Producer,
    topic: str,
    partition: int,
    columns: OutgoingColumns,
    stamp: Stamp | None,
    *,
    max_batch_bytes: int,
    deadline_s: float,
    after_half: Callable[[], None] | None = None,
) -> Producer:
    """Produce the records in order, within the producer's transaction; return the producer after that.

    Opens no transaction if there are no records. Raises OutputTooLarge before anything is sent if a record is larger
    than `max_batch_bytes`. `after_half` is called once, after half of the batches were sent.
    """
    batches = encode(
        columns,
        stamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequences.get(topic, 0),
        max_batch_bytes=max_batch_bytes,
    )
    deadline, half = Deadline(deadline_s, client.clock), (len(batches) + 1) // 2
    if not batches:
        return producer
    # rule: v1-announces-first
    producer = _join(client, producer, topic, partition, deadline)
    producer = _produce(client, producer, topic, partition, batches[:half], deadline)
    if after_half is not None:
        after_half()
    return _produce(client, producer, topic, partition, batches[half:], deadline)


def produce(
    client: KafkaClient,
    producer: Producer,
    topic: str,
    partition: int,
    batches: Sequence[EncodedBatch],
    deadline_s: float,
) -> Producer:
    """Produce the batches within the producer's transaction; return the producer after that.

    The batches must be encoded for this producer, starting at its next sequence number.
    """
    deadline = Deadline(deadline_s, client.clock)
    return _produce(client, _join(client, producer, topic, partition, deadline), topic, partition, batches, deadline)


def commit_offset(
    client: KafkaClient,
    producer: Producer,
    group: str,
    topic: str,
    partition: int,
    offset: int,
    metadata: str,
    deadline_s: float,
) -> Producer:
    """Add the commit of the group's offset, with its metadata, to the transaction; it takes effect with its commit."""
    deadline = Deadline(deadline_s, client.clock)
    # rule: v2-announces-nothing/offsets
    if producer.version == 1:
        # rule: v1-announces-first
        producer = _add_offsets(client, producer, group, deadline)
    row = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        **_versions(TxnOffsetCommitRequest, producer),
    )
    code, what = 0, f"commit the offset of group {group}"
    for _attempt in deadline.attempts():
        answer = client.send(request, client.coordinator(GROUP, group, deadline), timeout_s=deadline.remaining_s)
        code = answer.topics[0].partitions[0].error_code
        if not code:
            return replace(producer, opened=True)
        _require_retriable(code, what)
        client.forget_coordinator(GROUP, group)
    raise timed_out(code, what)


def end(client: KafkaClient, producer: Producer, *, commit: bool, deadline_s: float) -> Producer:
    """Commit or abort the open transaction; return the producer, ready for the next one."""
    [ended] = end_all(client, [producer], commit=commit, deadline_s=deadline_s)
    if isinstance(ended, TidegateError):
        raise ended
    return ended


def end_all(
    client: KafkaClient, producers: Iterable[Producer], *, commit: bool, deadline_s: float
) -> list[Producer | TidegateError]:
    """Do what `end` does for many producers at once; return the producers in order.

    If a transaction's end is refused, or its outcome unknown, the error takes the producer's place.
    """
    deadline, results = Deadline(deadline_s, client.clock), list[Producer | TidegateError](producers)
    for _attempt in deadline.attempts():
        open_ones = {place: got for place, got in enumerate(results) if _is_open(got)}
        if not open_ones:
            break
        requests = [(_end_request(producer, commit), producer.coordinator) for producer in open_ones.values()]
        answers = client.send_all(requests, timeout_s=deadline.remaining_s)
        for (place, producer), answer in zip(open_ones.items(), answers, strict=True):
            results[place] = _ended(client, producer, answer, deadline)
    return [
        timed_out(None, f"end the transaction of {got.transactional_id}") if _is_open(got) else got for got in results
    ]


def _is_open(result: Producer | TidegateError) -> TypeGuard[Producer]:
    # rule: end-opened-only
    return isinstance(result, Producer) and result.opened


def _end_request(producer: Producer, commit: bool) -> Any:
    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
        **_versions(EndTxnRequest, producer),
    )


def _ended(client: KafkaClient, producer: Producer, answer: Any, deadline: Deadline) -> Producer | TidegateError:
    """Return the producer, with `opened` still true if the request has to be retried; or the error."""
    if isinstance(answer, TidegateError):
        return answer
    if not answer.error_code and producer.version == 1:
        # rule: v1-sequence-wraps/ended
        return replace(producer, opened=False)
    if not answer.error_code:
        # rule: v2-sequence-from-zero, v2-epoch-of-end
        return replace(
            producer, opened=False, producer_id=answer.producer_id, epoch=answer.producer_epoch, sequences={}
        )
    if is_retriable(answer.error_code):
        return _located(client, producer, answer.error_code, deadline)
    return error_for(answer.error_code, f"end the transaction of {producer.transactional_id}")


def _produce(
    client: KafkaClient,
    producer: Producer,
    topic: str,
    partition: int,
    batches: Sequence[EncodedBatch],
    deadline: Deadline,
) -> Producer:
    for batch in batches:
        _produce_batch(client, producer, topic, partition, batch.data, deadline)
        # rule: v1-sequence-wraps
        following = (producer.sequences.get(topic, 0) + batch.count) % _SEQUENCES
        producer = replace(producer, opened=True, sequences={**producer.sequences, topic: following})
    return producer


def _join(client: KafkaClient, producer: Producer, topic: str, partition: int, deadline: Deadline) -> Producer:
    """Add the partition to the transaction: by a request in version 1; in version 2 the broker does it on produce."""
    # rule: v2-announces-nothing/partitions
    return _add_partition(client, producer, topic, partition, deadline) if producer.version == 1 else producer


def _produce_batch(
    client: KafkaClient, producer: Producer, topic: str, partition: int, batch: bytes, deadline: Deadline
) -> None:
    """Produce the batch to the partition. A retry does not duplicate it: the broker knows it by its sequence number."""
    code, what = 0, f"produce to {topic}/{partition}"
    for _attempt in deadline.attempts():
        leader = client.leader(topic, partition, deadline)
        request = _produce_request(producer, topic, partition, batch, deadline)
        code = (
            client.send(request, leader, timeout_s=deadline.remaining_s).responses[0].partition_responses[0].error_code
        )
        if code in (0, DuplicateSequenceNumberError.errno):
            return
        if code in _TOO_LARGE:
            raise OutputTooLarge(
                f"topic {topic} does not take a batch of {len(batch)} bytes",
                remedy="raise its max.message.bytes (and the brokers' message.max.bytes), then start again",
            )
        if code == InvalidTimestampError.errno:
            raise EngineError(
                f"topic {topic} does not accept the timestamp of a record",
                value=f"partition {partition}",
                remedy="raise its message.timestamp.after.max.ms, then start again",
            )
        _require_retriable(code, what)
        client.forget_leaders(topic)
    raise timed_out(code, what)


def _produce_request(producer: Producer, topic: str, partition: int, batch: bytes, deadline: Deadline) -> Any:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=int(deadline.remaining_s * 1_000),
        topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=batch)])],
        **_versions(ProduceRequest, producer),
    )


def _add_partition(client: KafkaClient, producer: Producer, topic: str, partition: int, deadline: Deadline) -> Producer:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        max_version=3,
    )
    producer, _answer = _ask_coordinator(
        client, producer, request, _first_result, f"open {topic}/{partition}", deadline
    )
    return replace(producer, opened=True)


def _first_result(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _add_offsets(client: KafkaClient, producer: Producer, group: str, deadline: Deadline) -> Producer:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
        max_version=3,
    )
    producer, _answer = _ask_coordinator(
        client, producer, request, lambda answer: int(answer.error_code), f"open the offsets of {group}", deadline
    )
    return replace(producer, opened=True)


def _ask_coordinator(
    client: KafkaClient,
    producer: Producer,
    request: Any,
    code_of: Callable[[Any], int],
    what: str,
    deadline: Deadline,
) -> tuple[Producer, Any]:
    """Send the request to the transaction coordinator; return the producer, with its current coordinator, and response.

    Retries until the deadline.
    """
    code, what = 0, f"{what} ({producer.transactional_id})"
    for _attempt in deadline.attempts():
        answer = client.send(request, producer.coordinator, timeout_s=deadline.remaining_s)
        code = code_of(answer)
        if not code:
            return producer, answer
        _require_retriable(code, what)
        producer = _located(client, producer, code, deadline)
    raise timed_out(code, what)


def _located(client: KafkaClient, producer: Producer, code: int, deadline: Deadline) -> Producer:
    """Return the producer; look its coordinator up again if the broker was not the coordinator."""
    if code != NotCoordinatorError.errno:
        return producer
    client.forget_coordinator(TRANSACTION, producer.transactional_id)
    return replace(producer, coordinator=client.coordinator(TRANSACTION, producer.transactional_id, deadline))


def _require_retriable(code: int, what: str) -> None:
    if not is_retriable(code):
        raise error_for(code, what)


def _versions(request: type[Any], producer: Producer) -> dict[str, int]:
    if producer.version == 1:
        # rule: request-versions/v1
        return {"max_version": _LAST_OF_VERSION_1[request]}
    # rule: request-versions/v2
    return {"min_version": _ONLY_OF_VERSION_2[request], "max_version": _ONLY_OF_VERSION_2[request]}
