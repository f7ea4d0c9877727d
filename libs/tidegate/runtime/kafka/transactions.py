"""Transactional output: open, with offset and mark, and end.

A `Producer` is a value: it says all that any process needs to go on with a transaction. Both of Kafka's transaction
protocols are spoken (`docs/protocol.md`); the request versions follow from the producer's. What a broker answers with
"not now" is tried again until the deadline, in seconds from the call; after any other error, and after a request
without an answer, the only thing to do next for the transactional id is `initialise`.
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
from tidegate.runtime.kafka.retries import (
    Deadline,
    is_retriable,
    refusal,
    too_late,
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
    """A transactional producer of one partition of each of its topics, at one moment. `opened`: a transaction is open.

    `sequences`: the next sequence number in each topic; 0 where none is named.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: Literal[1, 2]
    coordinator: int
    opened: bool
    sequences: Mapping[str, int] = field(default_factory=dict)


def initialise(
    client: KafkaClient, transactional_id: str, *, timeout_ms: int, current: Producer | None = None
) -> Producer:
    """A new epoch: whatever was open for the transactional id is aborted, older producers are fenced.

    Without `current` the id is taken over from whoever has it. With it the request carries that producer's own id and
    epoch, and raises Fenced if another producer has taken over since. `timeout_ms`: after that long without an end the
    broker aborts a transaction; UserError if it is more than the broker allows.
    """
    deadline = Deadline(INITIALISE_TIMEOUT_S)
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
    if answer.error_code in _FENCED:
        raise Fenced("another producer has taken the transactional id over", remedy="only one driver may run: find it")
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
    """The records stand, in order, in the producer's open transaction; without records nothing is opened.

    Raises OutputTooLarge before anything is sent. `after_half` is called once, when half of the batches were sent.
    """
    batches = encode(
        columns,
        stamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequences.get(topic, 0),
        max_batch_bytes=max_batch_bytes,
    )
    deadline, half = Deadline(deadline_s), (len(batches) + 1) // 2
    if not batches:
        return producer
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
    """The batches, encoded for this producer from its sequence on, stand in its open transaction."""
    deadline = Deadline(deadline_s)
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
    """When the open transaction commits, the group's offset of the partition is `offset`, with that metadata."""
    deadline = Deadline(deadline_s)
    if producer.version == 1:
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
    raise too_late(code, what)


def end(client: KafkaClient, producer: Producer, *, commit: bool, deadline_s: float) -> Producer:
    """The open transaction is committed or aborted, and the producer ready for the next."""
    [ended] = ends(client, [producer], commit=commit, deadline_s=deadline_s)
    if isinstance(ended, TidegateError):
        raise ended
    return ended


def ends(
    client: KafkaClient, producers: Iterable[Producer], *, commit: bool, deadline_s: float
) -> list[Producer | TidegateError]:
    """`end` for many at once, in order; in the place of a producer whose end is refused or unclear stands the error."""
    deadline, results = Deadline(deadline_s), list[Producer | TidegateError](producers)
    for _attempt in deadline.attempts():
        open_ones = {place: got for place, got in enumerate(results) if _is_open(got)}
        if not open_ones:
            break
        requests = [(_end_request(producer, commit), producer.coordinator) for producer in open_ones.values()]
        answers = client.send_all(requests, timeout_s=deadline.remaining_s)
        for (place, producer), answer in zip(open_ones.items(), answers, strict=True):
            results[place] = _ended(client, producer, answer, deadline)
    return [
        too_late(None, f"end the transaction of {got.transactional_id}") if _is_open(got) else got for got in results
    ]


def _is_open(result: Producer | TidegateError) -> TypeGuard[Producer]:
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
    """What has become of the producer: closed, still open because the broker is not ready, or an error."""
    if isinstance(answer, TidegateError):
        return answer
    if not answer.error_code and producer.version == 1:
        return replace(producer, opened=False)
    if not answer.error_code:
        return replace(
            producer, opened=False, producer_id=answer.producer_id, epoch=answer.producer_epoch, sequences={}
        )
    if is_retriable(answer.error_code):
        return _located(client, producer, answer.error_code, deadline)
    return refusal(answer.error_code, f"end the transaction of {producer.transactional_id}")


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
        following = (producer.sequences.get(topic, 0) + batch.count) % _SEQUENCES
        producer = replace(producer, opened=True, sequences={**producer.sequences, topic: following})
    return producer


def _join(client: KafkaClient, producer: Producer, topic: str, partition: int, deadline: Deadline) -> Producer:
    """What is produced to the partition from now on belongs to the transaction."""
    return _add_partition(client, producer, topic, partition, deadline) if producer.version == 1 else producer


def _produce_batch(
    client: KafkaClient, producer: Producer, topic: str, partition: int, batch: bytes, deadline: Deadline
) -> None:
    """The batch stands in the partition. Tried again it is the same batch: the broker knows it by its sequence."""
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
                f"topic {topic} does not take the timestamp of a record",
                value=f"partition {partition}",
                remedy="raise its message.timestamp.after.max.ms, then start again",
            )
        _require_retriable(code, what)
        client.forget_leaders(topic)
    raise too_late(code, what)


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
    """The answer of the transaction's coordinator, and the producer, which knows where that is now."""
    code, what = 0, f"{what} ({producer.transactional_id})"
    for _attempt in deadline.attempts():
        answer = client.send(request, producer.coordinator, timeout_s=deadline.remaining_s)
        code = code_of(answer)
        if not code:
            return producer, answer
        _require_retriable(code, what)
        producer = _located(client, producer, code, deadline)
    raise too_late(code, what)


def _located(client: KafkaClient, producer: Producer, code: int, deadline: Deadline) -> Producer:
    """The producer with its coordinator, looked for again if the broker asked is not it."""
    if code != NotCoordinatorError.errno:
        return producer
    client.forget_coordinator(TRANSACTION, producer.transactional_id)
    return replace(producer, coordinator=client.coordinator(TRANSACTION, producer.transactional_id, deadline))


def _require_retriable(code: int, what: str) -> None:
    if not is_retriable(code):
        raise refusal(code, what)


def _versions(request: type[Any], producer: Producer) -> dict[str, int]:
    if producer.version == 1:
        return {"max_version": _LAST_OF_VERSION_1[request]}
    return {"min_version": _ONLY_OF_VERSION_2[request], "max_version": _ONLY_OF_VERSION_2[request]}
