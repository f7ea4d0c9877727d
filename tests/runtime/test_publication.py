"""Publishing from the log, on a real log and a scripted broker: marks, settling, ends, and what is unclear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.runtime.scripted_kafka import PRODUCER_ID, ScriptedKafka
from tests.state.logs import OPERATOR, commit_rows, new_log, reopened, rows
from tidegate.contracts.errors import EngineError, Fenced, StartOver, StateError
from tidegate.contracts.schema import BatchMeta
from tidegate.runtime import publication
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.output import Destination, open_output
from tidegate.runtime.publication import Publication
from tidegate.state.operator_log import OperatorLog

pytestmark = pytest.mark.fast

INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED = 47, 49, 90
ANEW = (-1, -1)


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / OPERATOR)


@pytest.fixture
def kafka() -> ScriptedKafka:
    return ScriptedKafka()


def emissions(*texts: str) -> pa.Table:
    table = rows(*texts)
    return (
        table.append_column("headers", pa.nulls(len(texts), pa.binary()))
        .append_column("timestamp", [list(range(len(texts)))])
        .append_column("cause", [["time"] * len(texts)])
    )


def committed(log: OperatorLog, batch: int, *texts: str) -> BatchMeta:
    """The batch has emissions in partition 0."""
    tables = {("emission", 0): emissions(*texts)} if texts else {}
    return commit_rows(log, batch, tables, offsets={"in": {0: 10 * batch, 1: 0}})


def publishing(kafka: ScriptedKafka, log: OperatorLog, deadline_s: float = 5.0) -> Publication:
    return Publication(
        lambda: kafka, log, application="app", operator=OPERATOR, input="in", output="out", deadline_s=deadline_s
    )


def published(kafka: ScriptedKafka, log: OperatorLog, newest: BatchMeta) -> Publication:
    """A start with both partitions."""
    started = publishing(kafka, log)
    started.start([0, 1], newest)
    return started


def opened(kafka: ScriptedKafka, started: Publication, newest: BatchMeta, *texts: str) -> Producer:
    """What a task leaves: the emissions of the newest batch in an open transaction of partition 0."""
    destination = Destination(
        operator=OPERATOR,
        input="in",
        output="out",
        group=started.group,
        table_id=newest.table_id,
        partition=0,
        batch=newest.batch,
        next_offset=newest.offsets["in"][0],
        output_limit=started.output_limit,
        deadline_s=5.0,
    )
    return open_output(kafka, started.producers[0], destination, emissions(*texts))  # type: ignore[arg-type]


def own_ids(kafka: ScriptedKafka) -> list[tuple[int, int]]:
    """Producer id and epoch that each initialisation was sent with."""
    return [(request.producer_id, request.producer_epoch) for request in kafka.named("InitProducerId")]


def marks_sent(kafka: ScriptedKafka) -> list[tuple[int, str]]:
    places = [request.topics[0].partitions[0] for request in kafka.named("TxnOffsetCommit")]
    return [(place.committed_offset, place.committed_metadata) for place in places]


def payloads(kafka: ScriptedKafka) -> list[bytes]:
    return [bytes(request.topic_data[0].partition_data[0].records) for request in kafka.named("Produce")]


# --- start


def test_what_is_committed_above_the_mark_is_published_at_start(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """mark: batch 1 --- log: batches 1 and 2"""
    committed(log, 1, "older")
    newest = committed(log, 2, "newest", "and last")
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    published(kafka, log, newest)
    assert kafka.names == [*["InitProducerId"] * 2, "OffsetFetch", "Produce", "TxnOffsetCommit", "EndTxn"]
    assert own_ids(kafka) == [ANEW, ANEW]
    assert marks_sent(kafka) == [(20, f"tidegate/1 {log.table_id} 2")]
    assert (b"newest" in payloads(kafka)[0], b"older" in payloads(kafka)[0]) == (True, False)


def test_marks_are_compared_by_batch_never_by_offset(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """An idle advance emits without moving the offset; anybody can move an offset without publishing."""
    committed(log, 1, "a")
    newest = committed(log, 2, "b")
    for offset in (0, newest.offsets["in"][0], 10**9):
        published_already, above = ScriptedKafka(), ScriptedKafka()
        published_already.marks[0] = (offset, f"tidegate/1 {log.table_id} 2")
        above.marks[0] = (offset, f"tidegate/1 {log.table_id} 1")
        published(published_already, log, newest)
        published(above, log, newest)
        assert (len(payloads(published_already)), len(payloads(above))) == (0, 1)


def test_an_absent_mark_is_resolved_by_the_output_s_headers(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = committed(log, 1, "a")
    for found, expected in ((1, 0), (None, 1)):
        monkeypatch.setattr(publication, "newest_batch_header", lambda *_place, found=found: found)
        kafka = ScriptedKafka()
        published(kafka, log, newest)
        assert len(payloads(kafka)) == expected


def test_an_output_with_a_batch_above_the_log_s_stops(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = committed(log, 1, "a")
    monkeypatch.setattr(publication, "newest_batch_header", lambda *_place: 2)
    with pytest.raises(StateError, match="not reached") as stopped:
        published(kafka, log, newest)
    assert stopped.value.remedy


def test_a_mark_above_the_log_as_a_fenced_driver_knows_it_tells_of_its_successor(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    """The successor fenced it and published between the fenced driver's own initialisation and its look at the mark."""
    newest = committed(log, 1, "a")
    kafka.marks[0] = (20, f"tidegate/1 {log.table_id} 2")
    with pytest.raises(StateError, match="above the operator log"):
        published(kafka, log, newest)
    committed(reopened(log), 2, "b")
    with pytest.raises(StartOver):
        published(kafka, log, newest)


@pytest.mark.parametrize(("deadline_s", "timeout_ms"), [(60.0, 180_000), (30.0, 90_000), (1.0, 60_000)])
def test_the_transaction_timeout_is_three_deadlines_and_a_minute_at_least(
    kafka: ScriptedKafka, log: OperatorLog, deadline_s: float, timeout_ms: int
) -> None:
    publishing(kafka, log, deadline_s).start([0], committed(log, 1))
    assert [request.transaction_timeout_ms for request in kafka.named("InitProducerId")] == [timeout_ms]


# --- a batch


def test_output_offset_and_mark_stand_in_one_transaction(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    kafka.asked.clear()
    producer = opened(kafka, started, newest, "a")
    assert kafka.names == ["Produce", "TxnOffsetCommit"]
    assert (producer.opened, marks_sent(kafka)) == (True, [(20, f"tidegate/1 {log.table_id} 2")])
    [offsets], [output] = kafka.named("TxnOffsetCommit"), kafka.named("Produce")
    assert (offsets.group_id, offsets.producer_epoch) == ("app-tally", producer.epoch)
    assert offsets.transactional_id == output.transactional_id == "app-tally-0"


def test_what_is_published_again_is_what_was_published_byte_for_byte(kafka: ScriptedKafka, log: OperatorLog) -> None:
    texts = [f"emission {number}" for number in range(500)]
    first = published(kafka, log, committed(log, 1, "of an older batch"))
    newest = committed(log, 2, *texts)
    claim = commit_rows(log, 3, {}, offsets=newest.offsets)
    again = ScriptedKafka()
    again.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    published(again, log, claim)
    kafka.asked.clear()
    first.producers[0] = replace(first.producers[0], epoch=1, sequence=0)
    opened(kafka, first, newest, *texts)
    assert payloads(again) == payloads(kafka) != []
    assert marks_sent(again) == marks_sent(kafka)


def test_all_transactions_of_a_batch_are_ended_at_once(kafka: ScriptedKafka, log: OperatorLog) -> None:
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    started.end({p: replace(producer, opened=True) for p, producer in started.producers.items()}, newest)
    assert kafka.sent_together[-1] == ["EndTxn", "EndTxn"]
    assert started.unclear == set()


# --- what is unclear


@pytest.mark.parametrize("version", [1, 2])
def test_after_an_end_without_an_answer_the_next_request_is_init_producer_id(log: OperatorLog, version: int) -> None:
    """One's own id and epoch are accepted: nobody has taken over. The mark says that the end was carried out."""
    kafka = ScriptedKafka(version)  # type: ignore[arg-type]
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    producer = opened(kafka, started, newest, "a")
    kafka.marks[0] = (20, f"tidegate/1 {log.table_id} 2")
    kafka.silent.add("EndTxn")
    kafka.asked.clear()
    started.end({0: producer}, newest)
    assert kafka.names == ["EndTxn", "InitProducerId", "OffsetFetch"]
    assert own_ids(kafka) == [(PRODUCER_ID, producer.epoch)]
    assert started.unclear == set()


def test_after_a_forgotten_producer_id_the_next_request_is_init_producer_id(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    producer = opened(kafka, started, newest, "a")
    kafka.marks[0] = (20, f"tidegate/1 {log.table_id} 2")
    kafka.codes["EndTxn"] = [INVALID_PRODUCER_ID_MAPPING]
    kafka.asked.clear()
    started.end({0: producer}, newest)
    assert kafka.names == ["EndTxn", "InitProducerId", "OffsetFetch"]


def test_an_end_that_was_not_carried_out_is_published_again(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """The broker has aborted the transaction after its timeout; the mark is that of the batch before."""
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    producer = opened(kafka, started, newest, "a")
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    kafka.codes["EndTxn"] = [INVALID_PRODUCER_EPOCH]
    kafka.asked.clear()
    started.end({0: producer}, newest)
    assert kafka.names == ["EndTxn", "InitProducerId", "OffsetFetch", "Produce", "TxnOffsetCommit", "EndTxn"]
    assert marks_sent(kafka) == [(20, f"tidegate/1 {log.table_id} 2")]


def test_a_takeover_is_told_by_one_s_own_id_and_epoch(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    producer = opened(kafka, started, newest, "a")
    kafka.codes["EndTxn"] = [INVALID_PRODUCER_EPOCH]
    kafka.codes["InitProducerId"] = [PRODUCER_FENCED]
    with pytest.raises(Fenced):
        started.end({0: producer}, newest)
    assert kafka.names[-2:] == ["EndTxn", "InitProducerId"]
    assert started.unclear == {0}


def test_an_abandoned_transaction_is_aborted_by_one_s_own_id_before_anything_else(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    own = (PRODUCER_ID, started.producers[1].epoch)
    kafka.asked.clear()
    started.abandon([1])
    kafka.silent.add("InitProducerId")
    with pytest.raises(EngineError):
        started.clear_up(newest)
    kafka.silent.clear()
    started.clear_up(newest)
    assert kafka.names == ["InitProducerId", "InitProducerId", "OffsetFetch"]
    assert own_ids(kafka) == [own] * 2


def test_no_offset_is_shown_through_a_transaction_whose_end_is_unclear(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """Its end would commit what a failed attempt has left open; it is aborted, and its offset is shown later."""
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    started.abandon([0])
    kafka.asked.clear()
    started.show(newest)
    assert kafka.names == ["TxnOffsetCommit", "EndTxn", "InitProducerId", "OffsetFetch"]
    ids = [request.transactional_id for name in kafka.names[:3] for request in kafka.named(name)]
    assert ids == [f"app-{OPERATOR}-{partition}" for partition in (1, 1, 0)]
    kafka.asked.clear()
    started.show(newest)
    assert [request.transactional_id for request in kafka.named("EndTxn")] == [f"app-{OPERATOR}-0"]
