"""Kafka transactions: initialise a producer, produce records, commit an offset, and end the transaction.

A `Producer` is a value that holds all that any process needs to continue a transaction. Both versions of Kafka's
transaction protocol are supported (`docs/protocol.md`); the request versions follow from the producer's `version`.
Retriable errors are retried until the deadline, in seconds from the call. After any other error, and after a request
without a response, the only valid next step for the transactional id is `init_producer`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeGuard

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
REQUEST_BYTES = 16 * 2**20
"""How many bytes of record batches a request carries, unless its only one is larger; brokers refuse 100 MiB."""

_ALL_REPLICAS = -1
_SEQUENCES = 2**31
_NO_PRODUCER, _NO_EPOCH = -1, -1
_FENCED = (ProducerFencedError.errno, InvalidProducerEpochError.errno)
_TOO_LARGE = (MessageSizeTooLargeError.errno, RecordListTooLargeError.errno)
_LAST_OF_VERSION_1 = {ProduceRequest: 11, TxnOffsetCommitRequest: 4, EndTxnRequest: 4}
_ONLY_OF_VERSION_2 = {ProduceRequest: 12, TxnOffsetCommitRequest: 5, EndTxnRequest: 5}


@dataclass(frozen=True, kw_only=True)
class Producer:
    """The state of a transactional producer.

    `opened`: a transaction is open. `sequences`: the next sequence number per topic and partition; 0 if not in it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: Literal[1, 2]
    coordinator: int
    opened: bool
    sequences: Mapping[tuple[str, int], int] = field(default_factory=dict)


class Outgoing(NamedTuple):
    """A record batch, encoded for a producer, and the partition that it is for."""

    topic: str
    partition: int
    batch: EncodedBatch


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


def produce(
    client: KafkaClient,
    producer: Producer,
    queues: Sequence[Iterator[Outgoing]],
    *,
    deadline_s: float,
    after_first: Callable[[], None] = lambda: None,
) -> Producer:
    """Produce the batches within the producer's transaction; return the producer after that.

    Each queue has the batches of other partitions, in order. Requests carry a batch of each queue. Nothing is sent
    before the first batch of every queue is encoded; without batches no transaction is opened. `after_first` is called
    once, after the first request. A retry duplicates nothing: the broker knows a batch by its sequence number.
    """
    deadline, joined, first = Deadline(deadline_s, client.clock), set[tuple[str, int]](), True
    for batches in zip_longest(*queues):
        for together in _requests([batch for batch in batches if batch is not None]):
            new = [place for place in map(_place, together) if place not in joined]
            producer = _produce(client, _join(client, producer, new, deadline), together, deadline)
            joined.update(new)
            if first:
                after_first()
            first = False
    return producer


def encoded(
    producer: Producer,
    topic: str,
    partition: int,
    pieces: Iterable[tuple[OutgoingColumns, Stamp | None]],
    *,
    max_batch_bytes: int,
) -> Iterator[Outgoing]:
    """Yield the pieces as batches for that partition, in order, numbered from the producer's next sequence number on.

    Raise OutputTooLarge if a record is larger than `max_batch_bytes`.
    """
    following = producer.sequences.get((topic, partition), 0)
    for columns, stamp in pieces:
        batches = encode(
            columns,
            stamp,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=following,
            max_batch_bytes=max_batch_bytes,
        )
        for batch in batches:
            yield Outgoing(topic, partition, batch)
            following = _after(following, batch)


def _requests(batches: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    """Yield the batches in groups of at most REQUEST_BYTES; at least one each."""
    group, size = list[Outgoing](), 0
    for outgoing in batches:
        if group and size + len(outgoing.batch.data) > REQUEST_BYTES:
            yield group
            group, size = [], 0
        group.append(outgoing)
        size += len(outgoing.batch.data)
    if group:
        yield group


def _place(outgoing: Outgoing) -> tuple[str, int]:
    return outgoing.topic, outgoing.partition


def _after(sequence: int, batch: EncodedBatch) -> int:
    # rule: v1-sequence-wraps
    return (sequence + batch.count) % _SEQUENCES


def commit_offsets(
    client: KafkaClient,
    producer: Producer,
    group: str,
    offsets: Mapping[str, Mapping[int, tuple[int, str]]],
    deadline_s: float,
) -> Producer:
    """Add the commit of the group's offsets, {topic: {partition: (offset, metadata)}}, to the transaction.

    It takes effect with the transaction's commit.
    """
    deadline = Deadline(deadline_s, client.clock)
    # rule: v2-announces-nothing/offsets
    if producer.version == 1:
        # rule: v1-announces-first
        producer = _add_offsets(client, producer, group, deadline)
    of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    topics = [
        of_topic(
            name=topic,
            partitions=[
                of_topic.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
                for partition, (offset, metadata) in own.items()
            ],
        )
        for topic, own in offsets.items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=topics,
        **_versions(TxnOffsetCommitRequest, producer),
    )
    code, what = 0, f"commit the offsets of group {group}"
    for _attempt in deadline.attempts():
        answer = client.send(request, client.coordinator(GROUP, group, deadline), timeout_s=deadline.remaining_s)
        codes = [row.error_code for topic in answer.topics for row in topic.partitions if row.error_code]
        if not codes:
            return replace(producer, opened=True)
        for code in codes:
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


def _produce(client: KafkaClient, producer: Producer, batches: Sequence[Outgoing], deadline: Deadline) -> Producer:
    """Produce one batch for each of some partitions, by one request to each of their leaders."""
    left, refusal = list(batches), (0, "produce")
    for _attempt in deadline.attempts():
        refused = _produce_once(client, producer, left, deadline)
        if not refused:
            following = {_place(each): _after(producer.sequences.get(_place(each), 0), each.batch) for each in batches}
            return replace(producer, opened=True, sequences={**producer.sequences, **following})
        for code, outgoing in refused:
            refusal = code, f"produce to {outgoing.topic}/{outgoing.partition}"
            _check_refusal(*refusal, outgoing)
            client.forget_leaders(outgoing.topic)
        left = [outgoing for _code, outgoing in refused]
    raise timed_out(*refusal)


def _produce_once(
    client: KafkaClient, producer: Producer, batches: Sequence[Outgoing], deadline: Deadline
) -> list[tuple[int, Outgoing]]:
    """Produce the batches, and return those that were refused, each with the broker's code."""
    by_leader = defaultdict[int, list[Outgoing]](list)
    for outgoing in batches:
        by_leader[client.leader(outgoing.topic, outgoing.partition, deadline)].append(outgoing)
    requests = [(_produce_request(producer, those, deadline), leader) for leader, those in by_leader.items()]
    codes = dict[tuple[str, int], int]()
    for answer in client.send_all(requests, timeout_s=deadline.remaining_s):
        if isinstance(answer, TidegateError):
            raise answer
        codes |= {
            (topic.name, row.index): row.error_code for topic in answer.responses for row in topic.partition_responses
        }
    done = (0, DuplicateSequenceNumberError.errno)
    return [(codes[_place(each)], each) for each in batches if codes[_place(each)] not in done]


def _check_refusal(code: int, what: str, outgoing: Outgoing) -> None:
    """Raise unless the batch may be sent again."""
    if code in _TOO_LARGE:
        raise OutputTooLarge(
            f"topic {outgoing.topic} does not take a batch of {len(outgoing.batch.data)} bytes",
            value=f"partition {outgoing.partition}",
            remedy="raise its max.message.bytes (and the brokers' message.max.bytes), then start again",
        )
    if code == InvalidTimestampError.errno:
        raise EngineError(
            f"topic {outgoing.topic} does not accept the timestamp of a record",
            value=f"partition {outgoing.partition}",
            remedy="raise its message.timestamp.after.max.ms, then start again",
        )
    _require_retriable(code, what)


def _produce_request(producer: Producer, batches: Sequence[Outgoing], deadline: Deadline) -> Any:
    data = ProduceRequest.TopicProduceData
    by_topic = defaultdict[str, list[Any]](list)
    for topic, partition, batch in batches:
        by_topic[topic].append(data.PartitionProduceData(index=partition, records=batch.data))
    return ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=_ALL_REPLICAS,
        timeout_ms=int(deadline.remaining_s * 1_000),
        topic_data=[data(name=topic, partition_data=rows) for topic, rows in by_topic.items()],
        **_versions(ProduceRequest, producer),
    )


def _join(client: KafkaClient, producer: Producer, places: Sequence[tuple[str, int]], deadline: Deadline) -> Producer:
    """Add the partitions to the transaction: by a request in version 1; in version 2 the broker does it on produce."""
    # rule: v2-announces-nothing/partitions
    if producer.version == 2 or not places:
        return producer
    by_topic = defaultdict[str, list[int]](list)
    for topic, partition in places:
        by_topic[topic].append(partition)
    part = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[part(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
        max_version=3,
    )
    what = "open " + ", ".join(f"{topic}/{partition}" for topic, partition in places)
    producer, _answer = _ask_coordinator(client, producer, request, _worst_addition, what, deadline)
    return replace(producer, opened=True)


def _worst_addition(answer: Any) -> int:
    """Return 0 if all partitions were added, otherwise a code, and one that cannot be retried if there is one."""
    topics = answer.results_by_topic_v3_and_below
    codes = [row.partition_error_code for topic in topics for row in topic.results_by_partition]
    return max(filter(None, codes), key=lambda code: not is_retriable(code), default=0)


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
