"""The requests in each of Kafka's transaction protocols, and the reactions to their errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.runtime.kafka.peers import columns, stamp
from tests.runtime.scripted_kafka import PRODUCER_ID, ScriptedKafka
from tidegate.contracts.errors import EngineError, Unavailable, UserError
from tidegate.contracts.records import Row
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.fetch import fetch
from tidegate.runtime.kafka.offsets import committed_offsets, newest_batch_header, stable
from tidegate.runtime.kafka.transactions import Producer, commit_offsets, encoded, end, init_producer, produce

pytestmark = pytest.mark.fast

Work = Callable[[ScriptedKafka], object]
CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, INVALID_TRANSACTION_TIMEOUT = 51, 49, 50
READ_COMMITTED = 1


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def kafka(request: pytest.FixtureRequest) -> ScriptedKafka:
    return ScriptedKafka(request.param)


def started(kafka: ScriptedKafka) -> Producer:
    return init_producer(kafka, "id", timeout_ms=60_000)


def emitted(kafka: ScriptedKafka, producer: Producer, count: int = 1) -> Producer:
    rows = [Row(b"k", b"v", 1, 0)] * count
    batches = encoded(producer, "out", 0, [(columns(rows), stamp(count))], max_batch_bytes=999)
    return produce(kafka, producer, [batches], deadline_s=5)


def marked(kafka: ScriptedKafka, producer: Producer) -> Producer:
    return commit_offsets(kafka, producer, "group", {"in": {0: (5, "mark")}}, deadline_s=5)


def whole(kafka: ScriptedKafka, producer: Producer, count: int = 1) -> Producer:
    """One transaction from its first record to its end."""
    return end(kafka, marked(kafka, emitted(kafka, producer, count)), commit=True, deadline_s=5)


def test_the_protocol_is_that_of_the_broker(kafka: ScriptedKafka) -> None:
    assert started(kafka).version == kafka.version


def test_request_versions_follow_from_the_protocol(kafka: ScriptedKafka) -> None:
    whole(kafka, started(kafka))
    sent = {name: kafka.named(name)[0] for name in ("Produce", "TxnOffsetCommit", "EndTxn")}
    oldest, newest = (
        {name: getattr(one, end) for name, one in sent.items()} for end in ("_min_version", "_max_version")
    )
    if kafka.version == 1:
        assert newest == {"Produce": 11, "TxnOffsetCommit": 4, "EndTxn": 4}
    else:
        assert oldest["Produce"] >= 12
        assert oldest | {"Produce": 12} == {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
        assert (newest["TxnOffsetCommit"], newest["EndTxn"]) == (5, 5)


def test_version_1_announces_partitions_and_offsets_and_version_2_neither(kafka: ScriptedKafka) -> None:
    whole(kafka, started(kafka))
    announced = ["InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
    plain = ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"]
    assert kafka.names == (announced if kafka.version == 1 else plain)


def test_a_transaction_that_was_not_opened_is_not_ended(kafka: ScriptedKafka) -> None:
    producer = started(kafka)
    assert end(kafka, producer, commit=True, deadline_s=0.1) == producer
    assert kafka.named("EndTxn") == []


def test_in_version_2_a_transaction_begins_at_sequence_0_with_the_end_s_id_and_epoch() -> None:
    kafka = ScriptedKafka(2)
    before = replace(started(kafka), producer_id=99)
    after = whole(kafka, before, count=3)
    assert (after.sequences, after.producer_id, after.epoch) == ({}, PRODUCER_ID, before.epoch + 1)


def test_in_version_1_sequences_continue_modulo_2_to_the_31() -> None:
    kafka = ScriptedKafka(1)
    first = whole(kafka, replace(started(kafka), sequences={("out", 0): 2**31 - 4}), count=3)
    assert first.sequences == {("out", 0): 2**31 - 1}
    second = whole(kafka, first, count=3)
    assert (second.sequences, second.producer_id, second.epoch) == ({("out", 0): 2}, first.producer_id, first.epoch)


REQUESTS: dict[str, Work] = {
    "InitProducerId": started,
    "AddPartitionsToTxn": lambda kafka: emitted(kafka, started(kafka)),
    "Produce": lambda kafka: emitted(kafka, started(kafka)),
    "AddOffsetsToTxn": lambda kafka: marked(kafka, started(kafka)),
    "TxnOffsetCommit": lambda kafka: marked(kafka, started(kafka)),
    "EndTxn": lambda kafka: whole(kafka, started(kafka)),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_concurrent_transaction_is_waited_for(name: str) -> None:
    kafka = ScriptedKafka(1)
    kafka.codes[name] = [CONCURRENT_TRANSACTIONS] * 2
    REQUESTS[name](kafka)
    assert len(kafka.named(name)) == 3


@pytest.mark.parametrize("name", REQUESTS)
def test_a_forgotten_producer_id_is_an_error_at_once(name: str) -> None:
    kafka = ScriptedKafka(1)
    kafka.codes[name] = [INVALID_PRODUCER_ID_MAPPING]
    with pytest.raises(EngineError):
        REQUESTS[name](kafka)
    assert kafka.names[-1] == name


def test_a_timeout_longer_than_the_broker_allows_is_a_user_error() -> None:
    kafka = ScriptedKafka()
    kafka.codes["InitProducerId"] = [INVALID_TRANSACTION_TIMEOUT]
    with pytest.raises(UserError, match="longer than the broker allows") as refused:
        started(kafka)
    assert "transaction.max.timeout.ms" in refused.value.remedy


def test_marks_are_requested_as_stable_offsets() -> None:
    kafka = ScriptedKafka()
    committed_offsets(kafka, "group", "in", [0, 1])
    assert [request.require_stable for request in kafka.named("OffsetFetch")] == [True]


def test_last_stable_offsets_are_asked_for_with_read_committed() -> None:
    kafka = ScriptedKafka()
    stable(kafka, "in")
    assert [request.isolation_level for request in kafka.named("ListOffsets")] == [READ_COMMITTED]


def test_a_fetch_without_an_answer_is_sent_again_until_the_deadline() -> None:
    kafka = ScriptedKafka()
    kafka.silent.add("Fetch")
    begun = time.monotonic()
    with pytest.raises(EngineError, match="did not arrive in time"):
        fetch(kafka, "in", 0, 0, 1, max_bytes=999, deadline_s=0.05)
    assert len(kafka.named("Fetch")) > 2
    assert time.monotonic() - begun < 5


def test_a_scripted_broker_has_the_interface_of_a_client() -> None:
    offered = {name for name in vars(ScriptedKafka) if not name.startswith("_")} - {"names", "named"}
    assert offered <= set(vars(KafkaClient))


def test_the_newest_batch_is_searched_once_no_transaction_is_open(
    kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of others is open at offset 5: behind it may be what the operator has published."""
    monkeypatch.setattr(offsets, "TIMEOUT_S", 0.01)
    kafka.starts, kafka.ends, kafka.stable = {0: 5}, {0: 9}, {0: 5}
    with pytest.raises(Unavailable, match="transactions of others are open in out/0"):
        newest_batch_header(kafka, "out", 0, "op")  # type: ignore[arg-type]
    kafka.starts = kafka.stable = kafka.ends
    assert newest_batch_header(kafka, "out", 0, "op") is None  # type: ignore[arg-type]
