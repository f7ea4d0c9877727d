"""A commit's metadata is proportional to what its batch changed, and is read with a bounded number of reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.lakes import entry_path
from tests.metadata import described, small_meta
from tests.state.logs import OPERATOR, meta, new_log
from tidegate.contracts.batch_metadata import BatchMeta, Counts, Document, Pin, after_document
from tidegate.runtime.batch_loop.next_metadata import after_batch
from tidegate.runtime.task.messages import PartitionResult
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

PARTITIONS = range(100)
NAMES = """
emitted_time_limit emitted_keys suppressed lateness_sum lateness_max lateness_count lateness_upto_0 lateness_upto_4
overtime_sum overtime_max memory_records_now memory_records_max memory_bytes_now memory_bytes_max
"""
MEASURES = dict.fromkeys(NAMES.split(), 123_456)
"""What a suppression measures of a partition in a batch."""


def claim_of_100_partitions(log: OperatorLog) -> BatchMeta:
    """The metadata of a service's claim, when each partition has been read for long."""
    reached = dict.fromkeys(PARTITIONS, 1_790_000_000_000)
    counted = Counts(records_in=10**9, applied=10**9, emitted=10**9, held=123_456, held_bytes=12_345_678)
    return described(
        meta(log, 1, action="claim"),
        config="0" * 16,
        applied="0" * 16,
        topics={"in": "u" * 22, "out": "v" * 22},
        input="in",
        next_offset=dict.fromkeys(PARTITIONS, 10**9),
        stream_time=reached,
        last=dict.fromkeys(PARTITIONS, (1, uuid4().hex)),
        totals=dict.fromkeys(PARTITIONS, counted),
        measured=dict.fromkeys(PARTITIONS, dict.fromkeys(MEASURES, 10**9)),
        snapshot_batch=dict.fromkeys(PARTITIONS, 1),
        output_batch=dict.fromkeys(PARTITIONS, 1),
        active_clock=reached,
    )


TEXTS = sorted((Path(__file__).parent / "metadata_texts").glob("*.jsonl"))
"""Documents of logs, as an earlier release wrote them: of each log some that follow each other."""


def in_order(said: Any) -> Any:
    """The JSON value with the entries of each map per partition in the order of the partitions."""
    if not isinstance(said, dict):
        return said
    names = sorted(said, key=int) if all(map(str.isdigit, said)) else list(said)
    return {name: in_order(said[name]) for name in names}


def touching(before: BatchMeta, partition: int) -> BatchMeta:
    """The metadata of the batch after that one, in which one partition has read 1,000 records."""
    result = PartitionResult(
        partition=partition,
        action="batch",
        next_offset=before.partitions[partition].next_offset + 1_000,
        stream_time=before.partitions[partition].stream_time + 1_000,
        counts=Counts(records_in=1_000, applied=1_000, emitted=900, held=123_456, held_bytes=12_345_678),
        measures=MEASURES,
        files=(),
        transaction=None,
    )
    clock, attempt = before.clock + 1_000, uuid4().hex
    return after_batch(before, [result], batch=before.batch + 1, attempt=attempt, clock=clock)


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_a_document_is_written_as_it_was_before_metadata_was_one_value_per_partition(file: Path) -> None:
    """An earlier release wrote the entries of a map in the order in which partitions first had a value."""
    before, same = None, 0
    for text in file.read_text().splitlines():
        document = json.loads(text)
        newest = after_document(before, document)
        again = newest.to_json() if before is None or "base" not in document else changes_of(before, newest, document)
        assert json.dumps(in_order(json.loads(again))) == json.dumps(in_order(document))
        if json.dumps(in_order(document)) == json.dumps(document):
            assert again == text
            same += 1
        before = newest
    assert same


def changes_of(before: BatchMeta, newest: BatchMeta, document: Document) -> str:
    """The document of the newer batch, which builds upon the same one."""
    return newest.changes_to_json(before, document["base"])


def test_the_texts_have_every_field_of_a_document() -> None:
    said = [json.loads(text) for file in TEXTS for text in file.read_text().splitlines()]
    missing = {name for document in said for name in document if not any(each.get(name) for each in said)}
    assert missing == set()


TWO = {"facts": Pin(7, "t"), "prices": Pin(9, "u")}


@pytest.mark.parametrize("tables", [{}, dict([*TWO.items()][:1]), TWO], ids=["none", "one", "two"])
def test_what_is_known_of_each_table_that_a_reader_reads_is_read_as_it_was_written(tables: dict[str, Pin]) -> None:
    by_table = {0: dict.fromkeys(tables, 5)}
    known = {"input": "in", "needs": by_table, "reader_time": by_table, "last": {0: (1, "a")}}
    before = small_meta(**known, gates=by_table, inputs=tables)
    assert BatchMeta.from_json(before.to_json()) == before
    for now in (TWO, {"prices": TWO["prices"]}):
        later = {0: dict.fromkeys(now, 8)}
        newest = described(before, needs=later, reader_time=later, gates=later, inputs=now)
        assert after_document(before, json.loads(newest.changes_to_json(before, 0))) == newest


def metadata_bytes(log: OperatorLog, batch: int) -> int:
    """Bytes of the newest entry and of all that its batch wrote for its metadata."""
    rows = log.place.folder.glob(f"data/{batch:020d}-*-meta.-1.*.parquet")
    return entry_path(log.lake, log.version).stat().st_size + sum(file.stat().st_size for file in rows)


def test_of_100_partitions_a_batch_that_touches_one_writes_at_most_4_kb_of_metadata(tmp_path: Path) -> None:
    log = new_log(tmp_path / OPERATOR)
    newest = claim_of_100_partitions(log)
    log.commit(newest, [])
    for partition in (7, 8, 7):
        newest = touching(newest, partition)
        log.commit(newest, [])
        assert metadata_bytes(log, newest.batch) <= 4_000
