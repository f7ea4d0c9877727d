"""Output whose keys decide its partition: where records go, in one transaction, and what is known without a mark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from tests.runtime.publishing.test_publication import emissions, marks_sent, nothing_but, published, refusing
from tests.runtime.scripted_kafka import ScriptedKafka
from tests.state.logs import new_log
from tidegate.contracts.batch_metadata import Sink
from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import Output
from tidegate.contracts.errors import OutputTooLarge, Undecided
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.record_batch import decode, decode_headers
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.registry import operator_for
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.publishing import publication
from tidegate.runtime.publishing.encoding import (
    Destination,
    PartitionOutput,
    Rows,
    open_output,
    output_partitions,
    prepare_output,
)
from tidegate.runtime.publishing.topics import Outlets, OutputRoute, configured
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

PARTITIONS = 5
OUTPUT = Output("out", None, None, PARTITIONS)
BY_KEY = Outlets((OUTPUT,), None)
TEXTS = tuple(f"{place}" for place in range(20))


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / "o")


def due(key: bytes, partitions: int = PARTITIONS) -> int:
    """The partition of a key, by another implementation."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def keys_of(rows: pa.Table) -> list[bytes]:
    keys: list[bytes] = rows["key"].to_pylist()
    return keys


def sent(kafka: ScriptedKafka) -> dict[int, list[tuple[bytes | None, int, int]]]:
    """By partition of the output the records, each with the partition of the input and the seq in its headers."""
    found: dict[int, list[tuple[bytes | None, int, int]]] = {}
    for request in kafka.named("Produce"):
        for part in (part for topic in request.topic_data for part in topic.partition_data):
            for row in decode(bytes(part.records), 0, 2**62, []).records.rows():
                own = dict(decode_headers(row.headers))
                place = int(own[b"tidegate-partition"] or b""), int(own[b"tidegate-seq"] or b"")
                found.setdefault(part.index, []).append((row.key, *place))
    return found


def base_sequences(kafka: ScriptedKafka, partition: int) -> list[int]:
    batches = [
        bytes(part.records)
        for request in kafka.named("Produce")
        for topic in request.topic_data
        for part in topic.partition_data
        if part.index == partition
    ]
    return [int.from_bytes(batch[53:57], "big") for batch in batches]


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(1, 50))
def test_keys_are_partitioned_as_kafka_s_clients_do(keys: list[bytes], partitions: int) -> None:
    found = output_partitions(pa.chunked_array([pa.array(keys, pa.binary())]), partitions, of_input=3)
    assert found.tolist() == [due(key, partitions) for key in keys]


def test_a_record_without_a_key_goes_to_the_partition_of_its_input_modulo_those_of_the_output() -> None:
    keys = pa.chunked_array([pa.array([None, b"a"], pa.binary())])
    assert output_partitions(keys, 3, of_input=7).tolist() == [1, due(b"a", 3)]


def test_each_record_is_in_the_partition_of_its_key_in_the_order_of_the_log(log: OperatorLog) -> None:
    kafka, rows = ScriptedKafka(), emissions(*TEXTS)
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    published(kafka, log, refusing(log, 2, nothing_but(emissions=rows)), BY_KEY)
    expected: dict[int, list[tuple[bytes | None, int, int]]] = {}
    for seq, key in enumerate(keys_of(rows)):
        expected.setdefault(due(key), []).append((key, 0, seq))
    assert sent(kafka) == expected
    assert [mark for _, mark in marks_sent(kafka)] == [f"tidegate/1 {log.table_id} 2"]


def test_the_partitions_of_a_task_number_their_batches_for_a_partition_one_after_the_other(log: OperatorLog) -> None:
    """Two partitions of the input write to the same partitions of the output, as one producer."""
    kafka, rows = ScriptedKafka(), nothing_but(emissions=emissions(*TEXTS))
    started = published(kafka, log, refusing(log, 1, nothing_but()), BY_KEY)
    kafka.asked.clear()

    def of(partition: int, batch: int) -> PartitionOutput:
        return PartitionOutput(
            started.producers[0], Destination(route=started.route, partition=partition, batch=batch), rows
        )

    prepared = prepare_output([of(0, 2), of(1, 2)])
    assert prepared is not None
    opened = open_output(kafka, prepared, 5.0)  # type: ignore[arg-type]
    assert opened.partitions == (0, 1)
    for partition, records in sent(kafka).items():
        from_first = len([each for each in records if each[1] == 0])
        assert [each[1] for each in records] == [0] * from_first + [1] * (len(records) - from_first)
        assert base_sequences(kafka, partition) == [0, from_first]
        assert opened.producer.sequences["out", partition] == len(records)


Order = tuple[str | None, int]
"""The customer of an order, and its time."""
ByKey = dict[bytes, dict[int, list[tuple[bytes | None, int]]]]
"""Values and times of records in order, by their key and the partition of the input."""

ORDERS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "cid", "dan", "eve", None]), st.integers(0, 99)), max_size=10
)


def rows_of(orders: list[Order]) -> list[Row]:
    values = (json.dumps({"customer": customer}).encode() for customer, _ in orders)
    return [Row(None, value, at, offset) for offset, (value, (_, at)) in enumerate(zip(values, orders, strict=True))]


def reference(inputs: list[list[Order]]) -> ByKey:
    found: ByKey = {}
    for source, orders in enumerate(inputs):
        for row, (customer, at) in zip(rows_of(orders), orders, strict=True):
            if customer is not None:
                found.setdefault(customer.encode(), {}).setdefault(source, []).append((row.value, at))
    return found


def encoded_batches(outputs: list[PartitionOutput]) -> Iterator[tuple[int, Row]]:
    """What a task sends, decoded: each record with its partition of the topic."""
    prepared = prepare_output(outputs)
    for queue in prepared.queues if prepared else ():
        for outgoing in queue:
            yield from ((outgoing.partition, row) for row in decode(outgoing.batch.data, 0, 2**62, []).records.rows())


@given(st.lists(ORDERS, min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 10))
def test_of_each_new_key_the_topic_has_the_records_of_each_input_partition_once_in_their_order(
    inputs: list[list[Order]], partitions: int, cut: int
) -> None:
    options = {"output": "out", "output_partitions": partitions, "steps": [{"select_key": "customer"}]}
    value = {"json": {"customer": "string"}}
    config = read(PipelineConfig, {"kind": "pipeline", "input": "in", "value": value, **options})
    route = OutputRoute(
        operator="op", input="in", group="g", outlets=configured(config), limits={"out": 2**20}, times_in_values=False
    )
    producer = Producer(
        transactional_id="id", producer_id=1, epoch=0, version=2, coordinator=0, opened=False, sequences={}
    )
    operator = operator_for(config)
    states = [operator.open(MemoryStorage(operator.layout)) for _ in inputs]
    found: ByKey = {}
    for batch, part in enumerate((slice(None, cut), slice(cut, None))):
        outputs = []
        for source, (state, orders) in enumerate(zip(states, inputs, strict=True)):
            step = state.step(Records.from_rows(rows_of(orders)[part]), 0)
            to = Destination(route=route, partition=source, batch=batch)
            outputs.append(PartitionOutput(producer, to, Rows(step.emissions, step.late, step.rejected)))
        for partition, row in encoded_batches(outputs):
            assert row.key is not None
            assert partition == due(row.key, partitions)
            source = int(dict(decode_headers(row.headers))[b"tidegate-partition"] or b"")
            found.setdefault(row.key, {}).setdefault(source, []).append((row.value, row.timestamp))
    assert found == reference(inputs)


def test_a_record_that_is_too_large_names_the_partition_of_its_key(log: OperatorLog) -> None:
    kafka, rows = ScriptedKafka(), emissions("a")
    started = published(kafka, log, refusing(log, 1, nothing_but()), BY_KEY)
    started.route.limits["out"] = 70
    output = PartitionOutput(
        started.producers[0],
        Destination(route=started.route, partition=0, batch=2),
        Rows(rows, nothing_but().late, nothing_but().rejected),
    )
    with pytest.raises(OutputTooLarge) as refusal:
        prepare_output([output])
    assert f"topic out, partition {due(keys_of(rows)[0])}" in str(refusal.value.value)


def without_a_mark(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch, found: dict[int, int], starts: dict[int, int]
) -> list[tuple[int, int | None]]:
    """Start without a mark; return where headers were looked for. `found`: by partition the newest batch there."""
    asked, kafka = list[tuple[int, int | None]](), ScriptedKafka()
    kafka.topics["out"], kafka.starts = ("id of out", PARTITIONS), starts

    def newest(_client: Any, _topic: str, place: int, _operator: str, of_input: int | None) -> int | None:
        asked.append((place, of_input))
        return found.get(place)

    monkeypatch.setattr(publication, "newest_batch_header", newest)
    published(kafka, log, refusing(log, 2, nothing_but(emissions=emissions(*TEXTS[:3]))), BY_KEY)
    return [*asked, (len(sent(kafka)), None)]


def places(*texts: str) -> list[int]:
    return sorted({due(key) for key in keys_of(emissions(*texts))})


def test_without_a_mark_the_partitions_of_the_batch_s_keys_are_searched_for_the_input_partition_s_records(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of other partitions of the input say nothing: their transactions are others."""
    own = places(*TEXTS[:3])
    assert without_a_mark(log, monkeypatch, {}, {}) == [*((place, 0) for place in own), (len(own), None)]


def test_without_a_mark_one_partition_that_has_the_batch_shows_that_all_have_it(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have lost what they had."""
    own = places(*TEXTS[:3])
    assert len(own) > 1
    assert without_a_mark(log, monkeypatch, {own[-1]: 2}, dict.fromkeys(own, 100))[-1] == (0, None)


def test_without_a_mark_one_partition_that_lacks_the_batch_shows_that_none_has_it(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = places(*TEXTS[:3])
    starts = dict.fromkeys(own[1:], 100)
    assert without_a_mark(log, monkeypatch, {}, starts)[-1] == (len(own), None)


def test_without_a_mark_and_without_what_the_partitions_had_a_person_decides(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Undecided):
        without_a_mark(log, monkeypatch, {}, dict.fromkeys(places(*TEXTS[:3]), 100))


def test_another_number_of_partitions_is_another_role_of_the_topic() -> None:
    """So output of before is published first, where it would have been."""
    assert BY_KEY.lacks(Outlets((OUTPUT._replace(partitions=4),), None))
    assert not BY_KEY.lacks(BY_KEY)


def test_metadata_without_partitions_of_a_sink_is_of_outputs_beside_their_input() -> None:
    assert Sink.from_raw(["step", 3, "headers"]) == Sink("step", 3, "headers", None)
