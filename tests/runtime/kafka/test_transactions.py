"""Our transactions, read and judged by librdkafka; in both of Kafka's transaction protocols."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest

from tests.patience import wait_for
from tests.runtime.kafka.peers import columns, committed, read, stamp, unused, write
from tidegate.contracts.errors import EngineError, Fenced, OutputTooLarge, UserError
from tidegate.contracts.records import Row
from tidegate.devkit.embedded_broker import Broker
from tidegate.kernels.record_format.record_batch import decode_headers, encode, encode_headers
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.kafka.offsets import CommittedOffset, committed_offsets, latest, newest_batch_header, stable
from tidegate.runtime.kafka.transactions import (
    Outgoing,
    Producer,
    commit_offsets,
    encoded,
    end,
    end_all,
    init_producer,
    produce,
)

NewTopic = Callable[..., str]
Start = Callable[..., Producer]

pytestmark = pytest.mark.broker
TIME = 1_700_000_000_000
LIMIT = 1_048_588


@pytest.fixture
def kafka(broker: Broker) -> KafkaClient:
    return client({"bootstrap.servers": broker.bootstrap})


@pytest.fixture(params=[2, 1], ids=["KIP-890", "old protocol"])
def start(request: pytest.FixtureRequest, kafka: KafkaClient) -> Start:
    """`start()` initialises an id of its own; new brokers speak the old protocol too, with producers that do."""

    def begin(transactional_id: str | None = None, **options: Any) -> Producer:
        name = transactional_id or unused("producer")
        version: Literal[1, 2] = request.param
        return replace(init_producer(kafka, name, timeout_ms=60_000, **options), version=version)

    return begin


def row(value: bytes | None, key: bytes | None = b"k", headers: bytes = b"") -> Row:
    return Row(key, value, TIME, 0, headers)


def emit(
    kafka: KafkaClient, producer: Producer, topic: str, rows: Sequence[Row], batch: int = 1, **options: Any
) -> Producer:
    chosen = {"max_batch_bytes": LIMIT, "deadline_s": 30.0} | options
    limit, after_first = chosen.pop("max_batch_bytes"), chosen.pop("after_first", lambda: None)
    stamped = replace(stamp(len(rows), batch), partition=chosen.pop("of_input", None))
    batches = encoded(producer, topic, 0, [(columns(rows), stamped)], max_batch_bytes=limit)
    return produce(kafka, producer, [batches], after_first=after_first, **chosen)


def seen(broker: Broker, topic: str) -> list[bytes | None]:
    return [found.value for found in read(broker.bootstrap, topic)]


def test_committed_emissions_are_read_with_their_stamp(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, own = topic(), encode_headers([(b"trace", b"1"), (b"none", None)])
    rows = [row(b"v", headers=own), row(None), row(b"", key=None), row(b"x" * 900_000)]
    producer = end(kafka, emit(kafka, start(), name, rows, batch=7), commit=True, deadline_s=30)
    assert not producer.opened
    found = read(broker.bootstrap, name)
    assert [(one.key, one.value, one.timestamp) for one in found] == [(one.key, one.value, TIME) for one in rows]
    assert decode_headers(found[0].headers) == [
        (b"trace", b"1"),
        (b"none", None),
        (b"tidegate-operator", b"op"),
        (b"tidegate-batch", b"7"),
        (b"tidegate-seq", b"0"),
        (b"tidegate-cause", b"time"),
    ]
    assert dict(decode_headers(found[3].headers))[b"tidegate-seq"] == b"3"


def test_one_transaction_follows_another_and_aborted_ones_are_invisible(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, producer = topic(), start()
    for value, commit in ((b"1", True), (b"aborted", False), (b"2", True), (b"3", True)):
        producer = end(kafka, emit(kafka, producer, name, [row(value)] * 3), commit=commit, deadline_s=30)
    assert seen(broker, name) == [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3


def test_an_open_transaction_is_invisible_and_aborted_by_the_next_initialise(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, producer = topic(), start()
    opened = emit(kafka, producer, name, [row(b"lost")])
    assert stable(kafka, name) == {0: 0}
    renewed = start(producer.transactional_id, current=opened)
    assert (renewed.opened, renewed.sequences) == (False, {})
    end(kafka, emit(kafka, renewed, name, [row(b"kept")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"kept"]


def test_any_process_can_continue_with_a_producer(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, other = topic(), KafkaClient({"bootstrap.servers": broker.bootstrap})
    producer = emit(kafka, start(), name, [row(b"1")])
    producer = emit(other, producer, name, [row(b"2")])
    producer = end(kafka, producer, commit=True, deadline_s=30)
    end(other, emit(other, producer, name, [row(b"3")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"1", b"2", b"3"]
    other.close()


def test_a_takeover_fences_the_older_producer_whatever_it_does(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, old = topic(), start()
    opened = emit(kafka, old, name, [row(b"old")])
    new = start(old.transactional_id)
    with pytest.raises(EngineError):
        emit(kafka, opened, name, [row(b"zombie")])
    with pytest.raises(EngineError):
        end(kafka, opened, commit=True, deadline_s=30)
    with pytest.raises(Fenced, match="taken over the transactional id"):
        start(old.transactional_id, current=opened)
    end(kafka, emit(kafka, new, name, [row(b"new")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"new"]


def test_after_a_timeout_the_driver_s_own_id_and_epoch_are_accepted(
    kafka: KafkaClient, broker: Broker, topic: NewTopic
) -> None:
    """The broker aborts the transaction and raises the epoch, but nobody has taken over."""
    name = topic()
    producer = init_producer(kafka, unused("producer"), timeout_ms=200)
    opened = emit(kafka, producer, name, [row(b"too slow")])
    wait_for(lambda: stable(kafka, name)[0] > 0)
    with pytest.raises(EngineError):
        end(kafka, opened, commit=True, deadline_s=30)
    renewed = init_producer(kafka, producer.transactional_id, timeout_ms=60_000, current=opened)
    end(kafka, emit(kafka, renewed, name, [row(b"again")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"again"]


class Deaf(KafkaClient):
    """Its requests of one name arrive, and their answers are lost."""

    def __init__(self, broker: Broker, lost: str) -> None:
        super().__init__({"bootstrap.servers": broker.bootstrap})
        self._out_of_range_error = lost

    def send_all(self, requests: Sequence[Any], *, timeout_s: float | None = None) -> list[Any]:
        answers = super().send_all(requests, timeout_s=timeout_s)
        return [EngineError("no answer")] if requests[0][0].name == self._out_of_range_error else answers


def test_an_end_without_an_answer_is_resolved_by_the_own_id_and_the_mark(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, group, deaf = topic(), unused("group"), Deaf(broker, "EndTxnRequest")
    producer = emit(deaf, start(), name, [row(b"published")])
    producer = commit_offsets(deaf, producer, group, {name: {0: (5, "mark 1")}}, 30)
    with pytest.raises(EngineError, match="no answer"):
        end(deaf, producer, commit=True, deadline_s=30)
    renewed = start(producer.transactional_id, current=producer)
    assert committed_offsets(kafka, group, name, [0]) == {0: CommittedOffset(offset=5, metadata="mark 1")}
    end(kafka, emit(kafka, renewed, name, [row(b"next")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"published", b"next"]
    deaf.close()


def test_initialise_can_be_sent_again_after_one_without_an_answer(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, deaf = topic(), Deaf(broker, "InitProducerIdRequest")
    opened = emit(kafka, start(), name, [row(b"aborted")])
    for _ in range(2):
        with pytest.raises(EngineError, match="no answer"):
            init_producer(deaf, opened.transactional_id, timeout_ms=60_000, current=opened)
    renewed = start(opened.transactional_id, current=opened)
    end(kafka, emit(kafka, renewed, name, [row(b"kept")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"kept"]
    deaf.close()


def test_offset_and_mark_are_committed_only_with_the_output(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, group, producer = topic(), unused("group"), start()
    assert committed_offsets(kafka, group, name, [0]) == {0: None}
    for batch, commit in ((1, True), (2, False)):
        producer = emit(kafka, producer, name, [row(b"v")], batch=batch)
        producer = commit_offsets(kafka, producer, group, {name: {0: (10 * batch, f"tidegate/1 table {batch}")}}, 30)
        producer = end(kafka, producer, commit=commit, deadline_s=30)
    assert committed_offsets(kafka, group, name, [0]) == {0: CommittedOffset(offset=10, metadata="tidegate/1 table 1")}
    assert committed(broker.bootstrap, group, name) == (10, "tidegate/1 table 1")


def test_a_mark_waits_for_the_transaction_that_is_about_to_change_it(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, group, other = topic(), unused("group"), KafkaClient({"bootstrap.servers": broker.bootstrap})
    producer = commit_offsets(other, emit(other, start(), name, [row(b"v")]), group, {name: {0: (3, "mark")}}, 30)
    ending = threading.Timer(0.5, lambda: end(other, producer, commit=True, deadline_s=30))
    ending.start()
    assert committed_offsets(kafka, group, name, [0]) == {0: CommittedOffset(offset=3, metadata="mark")}
    ending.join()
    other.close()


def test_a_record_that_the_topic_does_not_accept_is_refused_before_anything_is_sent(
    kafka: KafkaClient, topic: NewTopic, start: Start
) -> None:
    name, producer = topic(max_message_bytes="1000"), start()
    limit = kafka.max_message_bytes(name)
    with pytest.raises(OutputTooLarge, match="record 1"):
        emit(kafka, producer, name, [row(b"small"), row(b"x" * 1000)], max_batch_bytes=limit)
    assert latest(kafka, name) == {0: 0}
    opened = emit(kafka, producer, name, [row(b"x" * 780)], max_batch_bytes=limit)
    end(kafka, opened, commit=True, deadline_s=30)


def test_a_topic_that_accepts_less_than_expected_is_named(kafka: KafkaClient, topic: NewTopic, start: Start) -> None:
    name = topic(max_message_bytes="1000")
    with pytest.raises(OutputTooLarge, match=f"topic {name} does not take a batch"):
        emit(kafka, start(), name, [row(b"x" * 1000)])


def test_the_callback_runs_once_after_the_first_request(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, ends_then = topic(), list[int]()
    producer = start()
    for count in (1, 40):
        rows = [row(b"%d" % index + b"x" * 400) for index in range(count)]
        before = latest(kafka, name)[0]
        producer = emit(
            kafka,
            producer,
            name,
            rows,
            max_batch_bytes=5_000,
            after_first=lambda start=before: ends_then.append(latest(kafka, name)[0] - start),
        )
        producer = end(kafka, producer, commit=True, deadline_s=30)
    assert ends_then[0] == 1
    assert len(ends_then) == 2 and 1 <= ends_then[1] < 20
    assert len(seen(broker, name)) == 41


def test_without_emissions_no_transaction_is_opened_or_ended(kafka: KafkaClient, topic: NewTopic, start: Start) -> None:
    name, producer = topic(), start()
    assert emit(kafka, producer, name, [], after_first=lambda: pytest.fail("nothing was sent")) == producer
    assert end(kafka, producer, commit=True, deadline_s=30) == producer


def test_many_producers_end_at_once_and_one_that_fails_does_not_hide_the_others(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    names, producers = [topic() for _ in range(4)], [start() for _ in range(4)]
    opened = [emit(kafka, producer, name, [row(b"v")]) for name, producer in zip(names, producers, strict=True)]
    start(opened[2].transactional_id)
    results = end_all(kafka, opened, commit=True, deadline_s=30)
    assert [isinstance(result, EngineError) for result in results] == [False, False, True, False]
    assert [seen(broker, name) for name in names] == [[b"v"], [b"v"], [], [b"v"]]


def test_encoded_batches_can_be_produced_as_they_are(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, producer = topic(), start()
    batches = list(
        encode(
            columns([row(b"v" * 10)] * 50),
            None,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            max_batch_bytes=200,
            compression="zstd",
        )
    )
    assert len(batches) > 5
    queue = iter([Outgoing(name, 0, batch) for batch in batches])
    end(kafka, produce(kafka, producer, [queue], deadline_s=30), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"v" * 10] * 50


def test_the_newest_batch_is_found_before_records_of_other_writers(
    kafka: KafkaClient, broker: Broker, topic: NewTopic, start: Start
) -> None:
    name, producer = topic(), start()
    assert newest_batch_header(kafka, name, 0, "op") is None
    for batch in (1, 2):
        producer = end(kafka, emit(kafka, producer, name, [row(b"v")] * 2, batch=batch), commit=True, deadline_s=30)
    producer = end(kafka, emit(kafka, producer, name, [row(b"v")], batch=3), commit=False, deadline_s=30)
    write(broker.bootstrap, name, [row(b"other", headers=encode_headers([(b"trace", b"1")]))] * 3_000)
    assert newest_batch_header(kafka, name, 0, "op") == 2
    assert newest_batch_header(kafka, name, 0, "another") is None


def test_the_newest_batch_of_a_partition_of_the_input_is_found_among_those_of_others(
    kafka: KafkaClient, topic: NewTopic, start: Start
) -> None:
    name, producer = topic(), start()
    for batch, partition in ((1, 0), (2, 0), (3, 1)):
        producer = end(
            kafka,
            emit(kafka, producer, name, [row(b"v")], batch=batch, of_input=partition),
            commit=True,
            deadline_s=30,
        )
    assert [newest_batch_header(kafka, name, 0, "op", of_input) for of_input in (0, 1, 2, None)] == [2, 3, None, 3]


def test_a_timeout_longer_than_the_broker_allows_is_a_user_error(kafka: KafkaClient) -> None:
    with pytest.raises(UserError, match="longer than the broker allows"):
        init_producer(kafka, unused("producer"), timeout_ms=2**31 - 1)


def test_the_protocol_follows_the_finalised_feature(kafka: KafkaClient, broker: Broker, topic: NewTopic) -> None:
    name, transactional_id = topic(), unused("producer")
    assert kafka.transaction_version() == 2
    _finalise(kafka, 1, downgrade=True)
    try:
        old = init_producer(kafka, transactional_id, timeout_ms=60_000)
        assert old.version == 1
        old = end(kafka, emit(kafka, old, name, [row(b"1")]), commit=True, deadline_s=30)
        old = end(kafka, emit(kafka, old, name, [row(b"2")]), commit=True, deadline_s=30)
        assert (old.sequences, old.opened) == ({(name, 0): 2}, False)
    finally:
        _finalise(kafka, 2, downgrade=False)
    new = init_producer(kafka, transactional_id, timeout_ms=60_000, current=old)
    assert new.version == 2
    end(kafka, emit(kafka, new, name, [row(b"3")]), commit=True, deadline_s=30)
    assert seen(broker, name) == [b"1", b"2", b"3"]


def _finalise(kafka: KafkaClient, level: int, *, downgrade: bool) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=2 if downgrade else 1
    )
    answer = kafka.send(UpdateFeaturesRequest(feature_updates=[update], max_version=1))
    assert answer.error_code == 0, answer
    wait_for(lambda: kafka.transaction_version() == level)
