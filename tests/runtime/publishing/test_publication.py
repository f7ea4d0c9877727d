"""Publishing from the log, on a real log and a scripted broker: marks, settling, ends, and what is unclear."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.scripted_kafka import PRODUCER_ID, ScriptedKafka
from tests.state.logs import OPERATOR, commit_rows, new_log, reopened, rows
from tidegate.contracts.batch_metadata import BatchMeta, Outcome, Settled, Sink
from tidegate.contracts.clock import SystemClock
from tidegate.contracts.config.operator_config import Output
from tidegate.contracts.errors import EngineError, Fenced, OutputTooLarge, StartOver, StateError
from tidegate.contracts.naming import group_id
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_batch import decode, decode_headers
from tidegate.runtime.kafka.transactions import Producer, end
from tidegate.runtime.publishing import publication
from tidegate.runtime.publishing.encoding import (
    Destination,
    Opened,
    PartitionOutput,
    Rows,
    emissions_for,
    open_output,
    prepare_output,
)
from tidegate.runtime.publishing.publication import Publication
from tidegate.runtime.publishing.topics import Outlets, OutputRoute
from tidegate.runtime.threads import Parallel
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

BASE_SEQUENCE = 53
"""Its place in a record batch."""
INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED = 47, 49, 90
ANEW = (-1, -1)
OUT, BOTH, DEAD = Outlets((Output("out"),), None), Outlets((Output("out"),), "dead"), Outlets((), "dead")


@pytest.fixture
def log(tmp_path: Path) -> OperatorLog:
    return new_log(tmp_path / OPERATOR)


@pytest.fixture
def kafka() -> ScriptedKafka:
    return ScriptedKafka()


def emissions(*texts: str) -> pa.Table:
    table = rows(*texts).cast(pa.schema({"key": pa.binary(), "value": pa.binary()}))
    return (
        table.append_column("headers", pa.nulls(len(texts), pa.binary()))
        .append_column("timestamp", pa.array(range(len(texts)), pa.int64()))
        .append_column("cause", pa.array(["time"] * len(texts), pa.string()))
    )


def committed(log: OperatorLog, batch: int, *texts: str) -> BatchMeta:
    """The batch has emissions in partition 0."""
    tables = {("emission", 0): emissions(*texts)} if texts else {}
    return commit_rows(log, batch, tables, next_offset={0: 10 * batch, 1: 0})


def refused(cause: str, *offsets: int) -> pa.Table:
    """Records that were refused for that."""
    table = emissions(*(f"{cause} {offset}" for offset in offsets)).drop_columns("cause")
    return table.append_column("offset", pa.array(offsets, pa.int64())).append_column(
        "cause", pa.array([cause] * len(offsets), pa.string())
    )


def nothing_but(**tables: pa.Table) -> Rows:
    return Rows(**{"emissions": emissions(), "late": refused("time"), "rejected": refused("null key")} | tables)


def refusing(log: OperatorLog, batch: int, rows: Rows, **more: object) -> BatchMeta:
    """The batch has those rows in partition 0, and nothing of what is empty."""
    kinds = {"emission": rows.emissions, "late": rows.late, "rejected": rows.rejected}
    tables = {(kind, 0): table for kind, table in kinds.items() if table.num_rows}
    return commit_rows(log, batch, tables, next_offset={0: 10 * batch, 1: 0}, **more)


def publishing(
    kafka: ScriptedKafka,
    log: OperatorLog,
    deadline_s: float = 5.0,
    outlets: Outlets = OUT,
    in_parallel: Parallel = map,
) -> Publication:
    return Publication(
        lambda: kafka,
        log,
        application="app",
        route=OutputRoute(
            operator=OPERATOR,
            input="in",
            group=group_id("app", OPERATOR),
            outlets=outlets,
            limits={topic: kafka.max_message_bytes(topic) for topic in outlets.topics},
            times_in_values=False,
        ),
        deadline_s=deadline_s,
        in_parallel=in_parallel,
    )


def published(kafka: ScriptedKafka, log: OperatorLog, newest: BatchMeta, outlets: Outlets = OUT) -> Publication:
    """A start with both partitions."""
    started = publishing(kafka, log, outlets=outlets)
    started.start([0, 1], newest)
    return started


def opened(kafka: ScriptedKafka, started: Publication, newest: BatchMeta, *texts: str) -> Producer:
    """What a task leaves: the emissions of the newest batch in an open transaction of partition 0."""
    return opened_with(kafka, started, newest, nothing_but(emissions=emissions(*texts)), OUT)


def opened_with(
    kafka: ScriptedKafka, started: Publication, newest: BatchMeta, rows: Rows, outlets: Outlets
) -> Producer:
    destination = Destination(
        route=replace(started.route, outlets=outlets),
        partition=0,
        batch=newest.batch,
        raised=newest.partitions[0].raised,
    )
    prepared = prepare_output([PartitionOutput(started.producers[0], destination, rows)])
    if prepared is None:
        return started.producers[0]
    sent = open_output(kafka, prepared, 5.0)  # type: ignore[arg-type]
    marked = started.add_marks(sent, newest.read_to, newest.batch)
    assert isinstance(marked, Opened)
    return marked.producer


def own_ids(kafka: ScriptedKafka) -> list[tuple[int, int]]:
    """Producer id and epoch that each initialisation was sent with."""
    return [(request.producer_id, request.producer_epoch) for request in kafka.named("InitProducerId")]


def marks_sent(kafka: ScriptedKafka) -> list[tuple[int, str]]:
    places = [place for request in kafka.named("TxnOffsetCommit") for place in request.topics[0].partitions]
    return [(place.committed_offset, place.committed_metadata) for place in places]


def payloads(kafka: ScriptedKafka) -> list[bytes]:
    return [bytes(request.topic_data[0].partition_data[0].records) for request in kafka.named("Produce")]


# --- start


def test_a_start_publishes_the_committed_batch_above_the_mark(kafka: ScriptedKafka, log: OperatorLog) -> None:
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
    for offset in (0, newest.partitions[0].next_offset, 10**9):
        published_already, above = ScriptedKafka(), ScriptedKafka()
        published_already.marks[0] = (offset, f"tidegate/1 {log.table_id} 2")
        above.marks[0] = (offset, f"tidegate/1 {log.table_id} 1")
        published(published_already, log, newest)
        published(above, log, newest)
        assert (len(payloads(published_already)), len(payloads(above))) == (0, 1)


def test_a_missing_mark_is_resolved_by_the_output_s_headers(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = committed(log, 1, "a")
    for found, expected in ((1, 0), (None, 1)):
        monkeypatch.setattr(publication, "newest_batch_header", lambda *_place, found=found: found)
        kafka = ScriptedKafka()
        published(kafka, log, newest)
        assert len(payloads(kafka)) == expected


@pytest.mark.parametrize("known", [{0: 3}, {}])
def test_with_a_missing_mark_only_the_newest_output_is_in_question(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch, known: dict[int, int]
) -> None:
    """1, 2 and 3 have output; of 1 and 2 the topic has nothing any more. Older metadata does not tell the newest."""
    for batch in (1, 2, 3):
        newest = committed(log, batch, f"of {batch}")
    newest = commit_rows(log, 4, {}, next_offset=newest.next_offsets, output_batch=known)
    for found, due in ((3, []), (2, [b"of 3"]), (4, [])):
        monkeypatch.setattr(publication, "newest_batch_header", lambda *_place, found=found: found)
        kafka = ScriptedKafka()
        kafka.starts = {0: 1_000}
        published(kafka, log, newest)
        assert [row.value for row in records_of(kafka, "out")] == due


def test_emissions_from_before_output_was_configured_are_not_published(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 has emissions --- output from 3 on; nobody is asked whether 2 was published, whatever the topic has lost"""
    monkeypatch.setattr(publication, "newest_batch_header", lambda *_place: None)
    kafka.starts = {0: 1_000}
    newest = committed(log, 2, "stays")
    published(
        kafka, log, commit_rows(log, 3, {}, next_offset=newest.next_offsets, output_batch={0: 2}, published_from=3)
    )
    assert payloads(kafka) == []


@pytest.mark.parametrize(("found", "compacted"), [(None, False), (None, True), (1, True)])
def test_if_nothing_shows_whether_output_was_published_a_person_decides(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch, found: int | None, compacted: bool
) -> None:
    """The mark has expired; the topic has deleted, or compacted away, what stood where the output would be."""
    committed(log, 1, "a")
    newest = committed(log, 2, "b")
    kafka.starts, kafka.compacted = {0: 1_000}, compacted
    monkeypatch.setattr(publication, "newest_batch_header", lambda *_place: found)
    with pytest.raises(StateError, match="it is unknown whether") as asked:
        published(kafka, log, newest)
    assert asked.value.value == "partition 0: batch 2"
    assert f"tidegate settle FILE {OPERATOR} --published" in asked.value.remedy
    assert payloads(kafka) == []


@pytest.mark.parametrize(("word", "due"), [("published", 0), ("unpublished", 1)])
def test_a_settlement_is_carried_out(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch, word: str, due: int
) -> None:
    committed(log, 1, "a")
    kafka.starts = {0: 1_000}
    monkeypatch.setattr(publication, "newest_batch_header", lambda *_place: None)
    claim = commit_rows(log, 2, {}, next_offset={0: 10, 1: 0}, settled={0: Settled(1, Outcome(word))})
    started = published(kafka, log, claim)
    started.commit_offsets(claim)
    assert len(payloads(kafka)) == due
    assert (10, f"tidegate/1 {log.table_id} 2") in marks_sent(kafka)


@pytest.mark.parametrize(("retention_s", "renewed_s"), [(400.0, 100.0), (None, 21_600.0)])
def test_the_marks_of_quiet_partitions_are_committed_again_well_before_they_expire(
    kafka: ScriptedKafka,
    log: OperatorLog,
    monkeypatch: pytest.MonkeyPatch,
    retention_s: float | None,
    renewed_s: float,
) -> None:
    """None: the brokers may not be asked for how long they keep offsets."""
    now = 1_000.0
    monkeypatch.setattr(SystemClock, "monotonic", lambda _clock: now)
    kafka.offset_retention = retention_s
    newest = committed(log, 1, "a")
    kafka.marks = {0: (10, f"tidegate/1 {log.table_id} 1"), 1: (0, f"tidegate/1 {log.table_id} 1")}
    started = published(kafka, log, newest)
    for seconds, due in ((0, 2), (1, 0), (renewed_s - 2, 0), (1, 2), (1, 0), (renewed_s, 2)):
        now += seconds
        kafka.asked.clear()
        started.commit_offsets(newest)
        assert len(marks_sent(kafka)) == due, now
    assert set(marks_sent(kafka)) == {(10, f"tidegate/1 {log.table_id} 1"), (0, f"tidegate/1 {log.table_id} 1")}


def test_output_above_the_newest_batch_of_the_log_stops_the_operator(
    kafka: ScriptedKafka, log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = committed(log, 1, "a")
    monkeypatch.setattr(publication, "newest_batch_header", lambda *_place: 2)
    with pytest.raises(StateError, match="not reached") as stopped:
        published(kafka, log, newest)
    assert stopped.value.remedy


def test_a_mark_above_a_fenced_driver_s_log_shows_its_successor(kafka: ScriptedKafka, log: OperatorLog) -> None:
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


def test_output_offset_and_mark_share_one_transaction(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    kafka.asked.clear()
    producer = opened(kafka, started, newest, "a")
    assert kafka.names == ["Produce", "TxnOffsetCommit"]
    assert (producer.opened, marks_sent(kafka)) == (True, [(20, f"tidegate/1 {log.table_id} 2")])
    [offsets], [output] = kafka.named("TxnOffsetCommit"), kafka.named("Produce")
    assert (offsets.group_id, offsets.producer_epoch) == ("app-tally", producer.epoch)
    assert offsets.transactional_id == output.transactional_id == "app-tally-0"


def test_output_published_again_is_equal_byte_for_byte(kafka: ScriptedKafka, log: OperatorLog) -> None:
    texts = [f"emission {number}" for number in range(500)]
    first = published(kafka, log, committed(log, 1, "of an older batch"))
    newest = committed(log, 2, *texts)
    claim = commit_rows(log, 3, {}, next_offset=newest.next_offsets)
    again = ScriptedKafka()
    again.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    published(again, log, claim)
    kafka.asked.clear()
    first.producers[0] = replace(first.producers[0], epoch=1, sequences={})
    opened(kafka, first, newest, *texts)
    assert payloads(again) == payloads(kafka) != []
    assert marks_sent(again) == marks_sent(kafka)


def test_the_output_of_several_partitions_is_in_one_transaction_of_the_first(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    """One request has the records of all, and one has their offsets and marks; a partition without output has none."""
    newest = committed(log, 1)
    started = publishing(kafka, log)
    started.start(range(3), replace(newest, partitions=dict.fromkeys(range(3), newest.partitions[0])))
    kafka.asked.clear()

    def output(partition: int, *texts: str) -> PartitionOutput:
        destination = Destination(
            route=started.route,
            partition=partition,
            batch=7,
        )
        return PartitionOutput(started.producers[partition], destination, nothing_but(emissions=emissions(*texts)))

    prepared = prepare_output([output(0), output(1, "a", "b"), output(2, "c")])
    assert prepared is not None
    opened = started.add_marks(open_output(kafka, prepared, 5.0), {"in": {1: 10, 2: 20}}, 7)  # type: ignore[arg-type]
    assert isinstance(opened, Opened)
    assert opened.partitions == (1, 2)
    assert opened.producer.transactional_id == "app-tally-1"
    assert opened.producer.sequences == {("out", 1): 2, ("out", 2): 1}
    [produced], [marked] = kafka.named("Produce"), kafka.named("TxnOffsetCommit")
    assert [each.index for each in produced.topic_data[0].partition_data] == [1, 2]
    rows = [(each.partition_index, each.committed_offset) for each in marked.topics[0].partitions]
    assert rows == [(1, 10), (2, 20)]


# --- dead letters


def topics_of(kafka: ScriptedKafka) -> list[str]:
    return [request.topic_data[0].name for request in kafka.named("Produce")]


def records_of(kafka: ScriptedKafka, topic: str) -> list[Row]:
    sent = [data for data, name in zip(payloads(kafka), topics_of(kafka), strict=True) if name == topic]
    return [row for data in sent for row in decode(data, 0, 2**62, []).records.rows()]


def test_emissions_and_dead_letters_share_one_transaction_and_one_mark(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1), BOTH)
    rows = nothing_but(emissions=emissions("a"), late=refused("time", 4))
    newest = refusing(log, 2, rows)
    kafka.asked.clear()
    producer = opened_with(kafka, started, newest, rows, BOTH)
    assert kafka.names == ["Produce", "Produce", "TxnOffsetCommit"]
    assert topics_of(kafka) == ["out", "dead"]
    assert {request.transactional_id for request in kafka.named("Produce")} == {producer.transactional_id}
    assert producer.sequences == {("out", 0): 1, ("dead", 0): 1}


def test_each_topic_of_a_transaction_has_its_own_sequences(log: OperatorLog) -> None:
    kafka = ScriptedKafka(version=1)
    started = published(kafka, log, committed(log, 1), BOTH)
    rows = nothing_but(emissions=emissions("a", "b"), late=refused("time", 4))
    producer = opened_with(kafka, started, refusing(log, 2, rows), rows, BOTH)
    assert [name for name in kafka.names if name == "AddPartitionsToTxn"] == ["AddPartitionsToTxn"] * 2
    started.producers[0] = end(kafka, producer, commit=True, deadline_s=5)  # type: ignore[arg-type]
    opened_with(kafka, started, refusing(log, 3, rows), rows, BOTH)
    assert [struct.unpack_from(">i", data, BASE_SEQUENCE)[0] for data in payloads(kafka)] == [0, 0, 2, 1]


def test_late_and_rejected_dead_letters_are_ordered_by_offset(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1), DEAD)
    rows = nothing_but(emissions=emissions("stays"), late=refused("time", 3, 9), rejected=refused("null key", 1, 5))
    opened_with(kafka, started, refusing(log, 2, rows), rows, DEAD)
    found = records_of(kafka, "dead")
    assert [row.value for row in found] == [b"null key 1", b"time 3", b"null key 5", b"time 9"]
    headers = [{name.decode(): value for name, value in decode_headers(row.headers)} for row in found]
    assert [one["__streams.errors.offset"] for one in headers] == [b"1", b"3", b"5", b"9"]
    assert [one["__streams.errors.message"] for one in headers[:2]] == [b"rejected: null key", b"late: time"]
    assert [one["tidegate-cause"] for one in headers[:2]] == [b"null key", b"time"]
    assert [one["tidegate-seq"] for one in headers] == [b"0", b"1", b"2", b"3"]
    assert {(one["__streams.errors.topic"], one["__streams.errors.partition"]) for one in headers} == {(b"in", b"0")}


@pytest.mark.parametrize("again", [False, True])
def test_dead_letters_name_offsets_of_the_input(kafka: ScriptedKafka, log: OperatorLog, again: bool) -> None:
    """--- the input was read to 8, lost what it had from 5 on, was read to 7 again, and lost what it had from 6 on"""
    started = published(kafka, log, committed(log, 1), DEAD)
    rows = nothing_but(late=refused("time", 3, 7, 8, 9))
    newest = refusing(log, 2, rows, raised={0: ((8, 3), (10, 4))})
    if again:
        kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
        published(kafka, log, newest, DEAD)
    else:
        opened_with(kafka, started, newest, rows, DEAD)
    headers = [dict(decode_headers(row.headers)) for row in records_of(kafka, "dead")]
    assert [one[b"__streams.errors.offset"] for one in headers] == [b"3", b"7", b"5", b"6"]


@given(st.integers(0, 3), st.sets(st.integers(0, 40)), st.sets(st.integers(41, 80)), st.sampled_from([OUT, BOTH, DEAD]))
@settings(max_examples=20, deadline=None)
def test_output_of_every_kind_published_again_is_equal_byte_for_byte(
    many: int, late: set[int], rejected: set[int], outlets: Outlets
) -> None:
    rows = nothing_but(
        emissions=emissions(*map(str, range(many))),
        late=refused("time", *sorted(late)),
        rejected=refused("null key", *sorted(rejected)),
    )
    with TemporaryDirectory() as folder:
        kafka, again, log = ScriptedKafka(), ScriptedKafka(), new_log(Path(folder) / OPERATOR)
        first = published(kafka, log, refusing(log, 1, nothing_but(late=refused("time", 0))), outlets)
        newest = refusing(log, 2, rows)
        again.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
        published(again, log, commit_rows(log, 3, {}, next_offset=newest.next_offsets), outlets)
        kafka.asked.clear()
        first.producers[0] = replace(first.producers[0], epoch=1, sequences={})
        opened_with(kafka, first, newest, rows, outlets)
    assert (payloads(again), topics_of(again)) == (payloads(kafka), topics_of(kafka))


SINKS = Outlets((Output("out", "slow"), Output("dead", "first")), None)


def of_steps(*texts: tuple[str, str]) -> pa.Table:
    """Emissions of steps, each with its text."""
    steps = pa.array([step for step, _ in texts], pa.string())
    return emissions(*(text for _, text in texts)).append_column("step", steps)


def stamps(kafka: ScriptedKafka, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """The values of a topic with their `tidegate-seq`."""
    return [(row.value, dict(decode_headers(row.headers))[b"tidegate-seq"]) for row in records_of(kafka, topic)]


def test_each_output_gets_the_emissions_of_its_step_once(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """mark: batch 1 --- log: batch 2 with emissions of three steps, one of which no topic gets"""
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    rows = nothing_but(emissions=of_steps(("first", "a"), ("kept", "b"), ("slow", "c"), ("slow", "d")))
    published(kafka, log, refusing(log, 2, rows), SINKS)
    assert stamps(kafka, "out") == [(b"c", b"2"), (b"d", b"3")]
    assert stamps(kafka, "dead") == [(b"a", b"0")]
    assert [mark for _, mark in marks_sent(kafka)] == [f"tidegate/1 {log.table_id} 2"]


def test_the_emissions_of_a_step_are_found_in_a_batch_as_in_a_log() -> None:
    """In a batch each name is there once, in a log each row has it."""
    of_log = of_steps(("first", "a"), ("kept", "b"), ("slow", "c"), ("slow", "d"))
    of_batch = of_log.set_column(of_log.schema.get_field_index("step"), "step", of_log["step"].dictionary_encode())
    for step, found in (("slow", [2, 3]), ("first", [0]), ("gone", [])):
        for table in (of_log, of_batch):
            seq, own = emissions_for(Output("out", step), table)
            assert (seq.tolist(), own.num_rows) == (found, len(found))


def test_emissions_that_no_topic_gets_are_not_published(kafka: ScriptedKafka, log: OperatorLog) -> None:
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    published(kafka, log, refusing(log, 2, nothing_but(emissions=of_steps(("kept", "b")))), SINKS)
    assert (payloads(kafka), marks_sent(kafka)) == ([], [])


def test_each_output_gets_emissions_from_the_batch_on_in_which_it_was_configured(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    """mark: batch 1 --- 2: emissions of both steps --- the second topic from 3 on --- both are in the log"""
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    rows = nothing_but(emissions=of_steps(("first", "a"), ("slow", "c")))
    published(kafka, log, refusing(log, 2, rows, sinks={"dead": Sink("first", 3, None)}), SINKS)
    assert (stamps(kafka, "out"), stamps(kafka, "dead")) == ([(b"c", b"1")], [])


def test_late_and_rejected_records_from_before_dead_letters_were_configured_are_not_published(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    """mark: batch 1 --- log: 2 and 3 refused records, dead letters from 4 on, 5 refused one"""
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    for batch in (2, 3, 5):
        newest = refusing(log, batch, nothing_but(late=refused("time", batch)), dead_letters_from=4)
    published(kafka, log, newest, DEAD)
    assert [row.value for row in records_of(kafka, "dead")] == [b"time 5"]


def test_a_batch_is_published_again_without_dead_letters_configured_later(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    """mark: batch 1 --- 2: an emission and a refused record --- dead letters from 3 on"""
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    rows = nothing_but(emissions=emissions("a"), late=refused("time", 4))
    published(kafka, log, refusing(log, 2, rows, dead_letters_from=3), BOTH)
    assert topics_of(kafka) == ["out"]


def test_a_missing_mark_is_resolved_by_the_headers_of_both_topics(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = refusing(log, 4, nothing_but(late=refused("time", 1)))
    for found, expected in (({"out": 3, "dead": None}, 1), ({"out": 3, "dead": 4}, 0), ({"out": 4, "dead": 3}, 0)):
        kafka = ScriptedKafka()
        monkeypatch.setattr(publication, "newest_batch_header", lambda _client, topic, *_, found=found: found[topic])
        published(kafka, log, newest, BOTH)
        assert len(payloads(kafka)) == expected


def test_a_dead_letter_that_is_too_large_names_its_topic(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1), DEAD)
    started.route.limits["dead"] = 100
    rows = nothing_but(late=refused("time", 4))
    with pytest.raises(OutputTooLarge) as refusal:
        opened_with(kafka, started, refusing(log, 2, rows), rows, DEAD)
    assert "topic dead, partition 0" in str(refusal.value.value)


def test_all_transactions_of_a_batch_are_ended_at_once(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """Each of four shares has a connection of its own, and the requests of a share are sent together"""
    newest, shares_at_once = committed(log, 1), list[int]()

    def noting(work: Callable[[Any], Any], shares: Sequence[Any]) -> Iterator[Any]:
        shares_at_once.append(len(shares))
        return map(work, shares)

    started = publishing(kafka, log, in_parallel=noting)
    started.start(range(2), newest)
    started.end([Opened(replace(each, opened=True), (p,)) for p, each in started.producers.items()], newest)
    assert shares_at_once == [2]
    assert kafka.sent_together[-2:] == [["EndTxn"], ["EndTxn"]]
    producer = replace(started.producers[0], opened=True)
    wide = replace(newest, partitions=dict.fromkeys(range(5), newest.partitions[0]))
    started.end([Opened(producer, (p,)) for p in range(5)], wide)
    assert shares_at_once == [2, 3]
    assert kafka.sent_together[-3:] == [["EndTxn", "EndTxn"], ["EndTxn", "EndTxn"], ["EndTxn"]]
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
    started.end([Opened(producer, (0,))], newest)
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
    started.end([Opened(producer, (0,))], newest)
    assert kafka.names == ["EndTxn", "InitProducerId", "OffsetFetch"]


def test_an_end_that_was_not_carried_out_is_published_again(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """The broker has aborted the transaction after its timeout; the mark is that of the batch before."""
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    producer = opened(kafka, started, newest, "a")
    kafka.marks[0] = (10, f"tidegate/1 {log.table_id} 1")
    kafka.codes["EndTxn"] = [INVALID_PRODUCER_EPOCH]
    kafka.asked.clear()
    started.end([Opened(producer, (0,))], newest)
    assert kafka.names == ["EndTxn", "InitProducerId", "OffsetFetch", "Produce", "TxnOffsetCommit", "EndTxn"]
    assert marks_sent(kafka) == [(20, f"tidegate/1 {log.table_id} 2")]


def test_a_takeover_is_detected_by_the_driver_s_own_id_and_epoch(kafka: ScriptedKafka, log: OperatorLog) -> None:
    started = published(kafka, log, committed(log, 1))
    newest = committed(log, 2, "a")
    producer = opened(kafka, started, newest, "a")
    kafka.codes["EndTxn"] = [INVALID_PRODUCER_EPOCH]
    kafka.codes["InitProducerId"] = [PRODUCER_FENCED]
    with pytest.raises(Fenced):
        started.end([Opened(producer, (0,))], newest)
    assert kafka.names[-2:] == ["EndTxn", "InitProducerId"]
    assert started.unclear == {0}


def test_an_abandoned_transaction_is_aborted_under_the_own_id_before_anything_else(
    kafka: ScriptedKafka, log: OperatorLog
) -> None:
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    own = (PRODUCER_ID, started.producers[1].epoch)
    kafka.asked.clear()
    started.mark_unclear([1])
    kafka.silent.add("InitProducerId")
    with pytest.raises(EngineError):
        started.clear_up(newest)
    kafka.silent.clear()
    started.clear_up(newest)
    assert kafka.names == ["InitProducerId", "InitProducerId", "OffsetFetch"]
    assert own_ids(kafka) == [own] * 2


def test_all_unclear_transactions_are_aborted_before_a_mark_is_read(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """The mark of a partition may be in a transaction that another partition's producer has opened."""
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    kafka.asked.clear()
    started.mark_unclear([0, 1])
    started.clear_up(newest)
    assert kafka.names == ["InitProducerId", "InitProducerId", "OffsetFetch"], "one request reads the marks of both"
    assert started.unclear == set()


def test_the_partitions_of_an_unclear_transaction_are_all_unclear(kafka: ScriptedKafka, log: OperatorLog) -> None:
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    kafka.silent.update({"EndTxn", "InitProducerId"})
    with pytest.raises(EngineError):
        started.end([Opened(replace(started.producers[0], opened=True), (0, 1))], newest)
    assert started.unclear == {0, 1}


def test_no_offset_is_shown_through_a_transaction_whose_end_is_unclear(kafka: ScriptedKafka, log: OperatorLog) -> None:
    """Its end would commit what a failed attempt has left open; it is aborted, and its offset is shown later."""
    newest = committed(log, 1)
    started = published(kafka, log, newest)
    started.mark_unclear([0])
    kafka.asked.clear()
    started.commit_offsets(newest)
    assert kafka.names == ["TxnOffsetCommit", "EndTxn", "InitProducerId", "OffsetFetch"]
    ids = [request.transactional_id for name in kafka.names[:3] for request in kafka.named(name)]
    assert ids == [f"app-{OPERATOR}-{partition}" for partition in (1, 1, 0)]
    kafka.asked.clear()
    started.commit_offsets(newest)
    assert [request.transactional_id for request in kafka.named("EndTxn")] == [f"app-{OPERATOR}-0"]
