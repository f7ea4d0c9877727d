"""Sending late and rejected records back: which ones, only once, and after an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lakes import lake_at
from tests.runtime.miniature import NAME, application
from tests.runtime.scripted_kafka import ScriptedKafka
from tests.state.logs import a_file
from tidegate.contracts.errors import EngineError, UserError
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_batch import decode, decode_headers, encode_headers
from tidegate.operators.registry import operator_for
from tidegate.runtime.batch_loop.next_metadata import after_claim, first_meta
from tidegate.runtime.repair import redrive as redrives
from tidegate.runtime.repair.redrive import (
    Choice,
    Redriving,
    by_reason,
    chosen,
    of_topic,
    once_each,
    places_of,
    with_origin,
    without,
)
from tidegate.runtime.repair.redriven import Redriven, format_mark, really_sent
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

CAUSES = ["null key", "too far ahead", "older than max_lateness"]
PLACES = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 9)))
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["late", "rejected"]),
            "partition": st.integers(0, 3),
            "offset": st.integers(0, 9),
            "key": st.none() | st.sampled_from([b"a", b"b"]),
            "timestamp": st.none() | st.integers(-5, 20),
            "cause": st.sampled_from(CAUSES),
            "topic": st.sampled_from([None, "orders", "step:counts"]),
        }
    ),
    max_size=20,
)
SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "key": pa.binary(),
        "timestamp": pa.int64(),
        "cause": pa.string(),
        "topic": pa.string(),
    }
)


# --- which ones


@given(
    RECORDS,
    st.lists(st.sampled_from(CAUSES), max_size=2),
    st.none() | st.integers(-5, 20),
    st.none() | st.integers(-5, 20),
    st.none() | st.sampled_from([b"a", b"c"]),
)
def test_a_chosen_record_meets_every_condition(
    records: list[dict[str, Any]], causes: list[str], since: int | None, until: int | None, key: bytes | None
) -> None:
    def meant(record: dict[str, Any]) -> bool:
        timestamp = record["timestamp"]
        return (
            (not causes or record["cause"] in causes)
            and (since is None or (timestamp is not None and timestamp >= since))
            and (until is None or (timestamp is not None and timestamp < until))
            and key in (None, record["key"])
            and not (record["topic"] or "").startswith("step:")
        )

    choice = Choice(causes=tuple(causes), since=since, until=until, key=key)
    found = chosen(pa.Table.from_pylist(records, SCHEMA), choice)
    assert found.to_pylist() == [record for record in records if meant(record)]


def test_a_record_that_several_branches_refused_is_sent_once() -> None:
    #  batch 3: refused by two branches --- batch 4: another record of this offset, of a topic that was created again
    rows = [(3, 0, 7, "a"), (3, 0, 8, "b"), (4, 0, 7, "c"), (3, 0, 7, "d"), (3, 1, 7, "e")]
    table = pa.Table.from_pylist(
        [{"batch": batch, "partition": part, "offset": at, "cause": cause} for batch, part, at, cause in rows]
    )
    assert once_each(table)["cause"].to_pylist() == ["a", "b", "c", "e"]
    assert once_each(table.slice(0, 0)).num_rows == 0


@given(RECORDS, PLACES)
def test_records_sent_before_are_counted_and_skipped(
    records: list[dict[str, Any]], before: frozenset[tuple[int, int]]
) -> None:
    rows = pa.Table.from_pylist(records, SCHEMA)
    left, reasons = without(rows, before), by_reason(rows, before)
    assert [place for place in places_of(rows) if place not in before] == places_of(left)
    assert sum(reason.records for reason in reasons) == len(records)
    assert sum(reason.records - reason.before for reason in reasons) == left.num_rows
    assert {(reason.kind, reason.cause) for reason in reasons} == {(one["kind"], one["cause"]) for one in records}


def test_the_origin_is_appended_to_the_record_s_own_headers() -> None:
    own = [(b"trace", b"1"), (b"tidegate-redriven", b"op/0/1")]
    for block, before in ((encode_headers(own), own), (None, []), (b"", [])):
        assert decode_headers(with_origin(block, "op", (3, 77))) == [*before, (b"tidegate-redriven", b"op/3/77")]


# --- what is known of earlier runs


def test_a_run_is_recorded_from_its_beginning_and_numbers_continue(tmp_path: Path) -> None:
    runs = Redriven(lake_at(tmp_path))
    first = runs.begin(runs.next_number(), [(0, 4), (1, 7)])
    assert runs.pending() == [first]
    runs.finish(first, first.places)
    second = runs.begin(runs.next_number(), [(1, 9)])
    runs.finish(second, frozenset())
    third = runs.begin(runs.next_number(), [(2, 5)])
    assert (first.number, second.number, third.number) == (1, 2, 3)
    assert (runs.pending(), runs.places()) == ([third], {(0, 4), (1, 7), (2, 5)})


def test_runs_that_were_recorded_before_runs_were_claimed_are_finished(tmp_path: Path) -> None:
    runs = Redriven(lake_at(tmp_path))
    runs.finish(runs.begin(1, [(0, 4)]), frozenset({(0, 4)}))
    (tmp_path / "_redriven" / "000001.pending.parquet").unlink()
    assert (runs.pending(), runs.places(), runs.next_number()) == ([], {(0, 4)}, 2)


@pytest.mark.parametrize("finished", [False, True])
def test_of_two_redrives_that_were_planned_at_the_same_time_one_is_refused(tmp_path: Path, finished: bool) -> None:
    runs = Redriven(lake_at(tmp_path))
    number = runs.next_number()
    run = runs.begin(number, [(0, 4)])
    if finished:
        runs.finish(run, run.places)
    with pytest.raises(UserError, match="another redrive"):
        runs.begin(number, [(0, 4)])


@given(PLACES, st.dictionaries(st.integers(0, 3), st.sampled_from([format_mark("t", 3), format_mark("t", 2), "x"])))
def test_in_an_interrupted_run_the_partitions_with_its_mark_were_sent(
    places: frozenset[tuple[int, int]], marks: dict[int, str]
) -> None:
    run = redrives.Run(3, places)
    assert really_sent(run, "t", marks) == {place for place in places if marks.get(place[0]) == format_mark("t", 3)}
    assert really_sent(run, "another", marks) == frozenset()


# --- sending


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    scripted = ScriptedKafka()
    monkeypatch.setattr(redrives, "client", lambda _options: scripted)
    return scripted


@pytest.fixture
def sender(kafka: ScriptedKafka, tmp_path: Path) -> Redriving:
    """Of an operator that has refused two records in partition 0 (one late, one rejected) and one in partition 1."""
    given = application(tmp_path)
    config = given.operators[NAME]
    log = OperatorLog.open(
        lake_at(tmp_path / "lake" / NAME), NAME, log_schema(operator_for(config).columns), create=True
    )
    begun = first_meta(NAME, log.table_id, 0, {"in": {0: 0, 1: 0}})
    meta = after_claim(begun, attempt="a", clock=0, config="", topics={})
    files = [
        _written(log, "late", 0, [(b"late", 5, 8)]),
        _written(log, "rejected", 0, [(b"rejected", -7, 3)]),
        _written(log, "late", 1, [(b"other", 6, 4)]),
    ]
    log.commit(meta, files)
    return Redriving(given, NAME, lambda _partition, _sent: None)


def _written(log: OperatorLog, kind: str, partition: int, records: list[tuple[bytes, int, int]]) -> Any:
    values, timestamps, offsets = zip(*records, strict=True)
    rows = pa.table(
        {
            "key": pa.array([b"k"] * len(records), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([encode_headers([(b"own", b"1")])] * len(records), pa.binary()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "offset": pa.array(offsets, pa.int64()),
            "cause": pa.array([CAUSES[0]] * len(records), pa.string()),
        }
    )
    return a_file(log, kind, partition, rows, batch=0, attempt=f"a{kind}", topic="in")


def redrive(sender: Redriving, *, again: bool = False, **choice: Any) -> int:
    """How many were sent."""
    sender.settle()
    planned = sender.plan(Choice(**choice), to=None, again=again)
    if planned.rows.num_rows:
        sender.send(planned)
    return planned.rows.num_rows


def sent(kafka: ScriptedKafka) -> list[Row]:
    data = [bytes(request.topic_data[0].partition_data[0].records) for request in kafka.named("Produce")]
    return [row for batch in data for row in decode(batch, 0, 2**62, []).records.rows()]


def test_a_partition_s_records_are_sent_in_one_transaction_by_offset(kafka: ScriptedKafka, sender: Redriving) -> None:
    assert redrive(sender, partition=0) == 2
    assert kafka.names == ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"]
    found = sent(kafka)
    assert [(row.key, row.value, row.timestamp) for row in found] == [(b"k", b"rejected", -1), (b"k", b"late", 5)]
    assert [decode_headers(row.headers) for row in found] == [
        [(b"own", b"1"), (b"tidegate-redriven", b"op/0/3")],
        [(b"own", b"1"), (b"tidegate-redriven", b"op/0/8")],
    ]


def test_the_same_records_are_sent_once_without_again(kafka: ScriptedKafka, sender: Redriving) -> None:
    assert redrive(sender, kind="late") == 2
    assert redrive(sender) == 1
    assert redrive(sender) == 0
    assert redrive(sender, again=True) == 3
    assert len(sent(kafka)) == 6


def test_after_an_error_nothing_is_left_open(kafka: ScriptedKafka, sender: Redriving) -> None:
    kafka.codes["TxnOffsetCommit"] = [49]
    with pytest.raises(EngineError):
        redrive(sender, partition=0)
    assert kafka.names[-1] == "InitProducerId"


def test_the_next_redrive_sends_what_an_interrupted_one_did_not(kafka: ScriptedKafka, sender: Redriving) -> None:
    """partition 0: committed, its answer lost --- partition 1: never begun"""
    kafka.silent.add("EndTxn")
    with pytest.raises(EngineError):
        redrive(sender)
    [place] = [request.topics[0].partitions[0] for request in kafka.named("TxnOffsetCommit")]
    kafka.marks[place.partition_index] = (place.committed_offset, place.committed_metadata)
    kafka.silent.clear()
    kafka.asked.clear()
    assert redrive(sender) == 1
    assert [row.value for row in sent(kafka)] == [b"other"]
    assert kafka.names[:3] == ["InitProducerId", "InitProducerId", "OffsetFetch"]


def test_a_run_that_was_taken_over_sends_nothing_more(
    kafka: ScriptedKafka, sender: Redriving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """partition 0 --- another redrive settles this run, and sends the rest --- partition 1: refused"""
    planned, counts = sender.plan(Choice(), to=None, again=False), list[int]()
    real = Redriving._send_partition

    def overlapped(self: Redriving, topic: str, partition: int, *given: Any) -> None:
        if partition == 1 and not counts:
            for request in kafka.named("TxnOffsetCommit"):
                place = request.topics[0].partitions[0]
                kafka.marks[place.partition_index] = (place.committed_offset, place.committed_metadata)
            counts.append(0)
            counts.append(redrive(sender))
        real(self, topic, partition, *given)

    monkeypatch.setattr(Redriving, "_send_partition", overlapped)
    with pytest.raises(UserError, match="taken over"):
        sender.send(planned)
    assert counts == [0, 1]
    assert sorted(row.value for row in sent(kafka)) == [b"late", b"other", b"rejected"]


def test_the_topic_needs_at_least_the_partitions_of_the_records(kafka: ScriptedKafka, sender: Redriving) -> None:
    kafka.topics["in"] = ("id", 1)
    with pytest.raises(UserError, match="too few partitions"):
        redrive(sender)
    assert kafka.names == []
    assert redrive(sender, partition=0) == 2


def test_of_several_input_topics_the_records_of_one_are_sent_back() -> None:
    rows = pa.table({"origin_topic": ["left", "right", "left"], "offset": [1, 2, 3]})
    assert of_topic(rows, ("left", "right"), "left")["offset"].to_pylist() == [1, 3]
    assert of_topic(rows, ("left", "right"), "elsewhere").num_rows == 3
    with pytest.raises(UserError, match="several topics") as refused:
        of_topic(rows, ("left", "right"), None)
    assert "--to" in refused.value.remedy
