"""A start and `tidegate status` on a log of 600,000 commits (a week at one per second) with 100 partitions.

Nothing is cleaned up: all entries are in one folder. Entries before the newest compaction are copies of one real entry
with other numbers. They have as many files and bytes as a service would leave, except for complete metadata and log
checkpoints, which nobody reads any more. Later entries are committed by the library.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tests.lakes import entry_path, lake_at
from tidegate.contracts.batch_metadata import BatchMeta, Counts, Document
from tidegate.contracts.log_schema import META_PARTITION, log_schema
from tidegate.operators.registry import operator_for
from tidegate.runtime.batch_loop.next_metadata import after_batch, after_claim, after_compaction, first_meta
from tidegate.runtime.configuration.application import Application, application_of
from tidegate.runtime.control_sync.backfill import TOGETHER
from tidegate.runtime.doctor import status
from tidegate.runtime.task.messages import PartitionResult
from tidegate.state import disk, earlier_batches
from tidegate.state.delta_log.actions import add, commit_info, transaction
from tidegate.state.delta_log.attempt_files import Naming, write_file
from tidegate.state.delta_log.checkpoints import write_checkpoint
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

NAME, TOPIC = "updates", "in"
PARTITIONS, COMMITS, TAIL = 100, 600_000, 100
START_MS, EVERY_MS = 1_790_000_000_000, 1_000
ROWS_TOGETHER = 50_000
NAMES = """
emitted_time_limit emitted_keys suppressed lateness_sum lateness_max lateness_count lateness_upto_0 lateness_upto_4
overtime_sum overtime_max memory_records_now memory_records_max memory_bytes_now memory_bytes_max
"""
MEASURES = dict.fromkeys(NAMES.split(), 123_456)


def measure(say: Any) -> dict[str, float]:
    """Return seconds of a claim (without Kafka), a status and reading the last batches, and bytes of one entry."""
    with tempfile.TemporaryDirectory() as folder:
        application = application_in(Path(folder))
        began = time.perf_counter()
        log = make(application, partitions=PARTITIONS, commits=COMMITS)
        say(f"{COMMITS:,} commits of {PARTITIONS} partitions made in {time.perf_counter() - began:.0f} s")
        entry = entry_path(log.lake, log.version).stat().st_size
        status_s = _seconds(lambda: status.operator_status(application, NAME, lambda _topic: status.TopicEnds()))
        backfill_s = _seconds(lambda: catch_up_to_the_last(application))
        claim_s = _seconds(lambda: claim(application))
        return {
            "claim_s": claim_s,
            "status_s": status_s,
            "last_batches_s": backfill_s,
            "entry_of_one_partition_bytes": entry,
        }


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def application_in(folder: Path) -> Application:
    """Return an application with one operator."""
    operator = {"kind": "suppression", "input": TOPIC, "output": "out", "until": {"time_limit": "1h"}}
    places = {"lake": str(folder / "lake"), "state": str(folder / "state"), "keep_output": "forever"}
    kafka = {"bootstrap.servers": "nowhere:1"}
    return application_of({"application": "app", **places, "kafka": kafka, "operators": {NAME: operator}})


def opened(application: Application, *, create: bool = False) -> OperatorLog:
    """Return the operator's log, opened as a driver does."""
    schema = log_schema(operator_for(application.operators[NAME]).columns)
    return OperatorLog.open(lake_at(application.lake.folder / NAME), NAME, schema, create=create)


def claim(application: Application) -> OperatorLog:
    """Do what a claim does on the log: open it, commit, look for the lineage."""
    log = opened(application)
    newest = log.newest()
    assert newest is not None
    claimed = after_claim(newest, attempt=uuid4().hex, clock=newest.clock + 1, config=newest.config, topics={})
    log.commit(claimed, [])
    earlier_batches.lineage(log, claimed)
    return log


def catch_up_to_the_last(application: Application) -> list[BatchMeta]:
    """Read what the control database reads when it lacks the last batches."""
    log = LogVersion.at(lake_at(application.lake.folder / NAME), None)
    batches = earlier_batches.gapless_range(log)
    assert batches.stop - batches.start <= TOGETHER * 1_000
    return earlier_batches.metas_of(log, range(batches.stop - 5, batches.stop))


def batch(newest: BatchMeta, partition: int) -> BatchMeta:
    """Return the metadata of a batch in which one partition has read 1,000 records."""
    result = PartitionResult(
        partition=partition,
        action="batch",
        next_offset=newest.partitions[partition].next_offset + 1_000,
        stream_time=newest.clock,
        counts=Counts(records_in=1_000, applied=1_000, emitted=900, held=123_456, held_bytes=12_345_678),
        measures=MEASURES,
        files=(),
        transaction=None,
    )
    clock, attempt = newest.clock + EVERY_MS, uuid4().hex
    return after_batch(newest, [result], batch=newest.batch + 1, attempt=attempt, clock=clock)


def make(application: Application, *, partitions: int, commits: int, held: int = 1, tail: int = TAIL) -> OperatorLog:
    """Create a log of that many commits, each of which changes one partition, with `held` keys in each partition.

    The last `tail` commits are real ones.
    """
    with patch.object(disk, "sync", lambda _path: None):
        log = opened(application, create=True)
        newest = _first(log, partitions)
        log.commit(newest, [])
        for partition in range(partitions):  # so that the metadata has all of them
            newest = batch(newest, partition)
            log.commit(newest, [])
        newest = _bulk(log, newest, commits - tail, held)
        log = opened(application)
        for number in range(tail):
            newest = batch(newest, number % partitions)
            log.commit(newest, [])
    return log


def _first(log: OperatorLog, partitions: int) -> BatchMeta:
    return replace(
        first_meta(NAME, log.table_id, START_MS, {TOPIC: dict.fromkeys(range(partitions), 0)}),
        epoch=1,
        batch=0,
        attempt=uuid4().hex,
        config="0" * 16,
        applied="0" * 16,
        topics={TOPIC: "u" * 22, "out": "v" * 22},
    )


def _bulk(log: OperatorLog, before: BatchMeta, batches: int, held: int) -> BatchMeta:
    """Write the entries up to that batch, a compaction at it that contains their rows, and a checkpoint after it."""
    like = json.loads(batch(before, 0).changes_to_json(before, before.batch))
    partitions, files = len(before.partitions), list[DataFile]()
    for first in range(before.batch + 1, batches, ROWS_TOGETHER):
        numbers = range(first, min(first + ROWS_TOGETHER, batches))
        written = [_line(like, number, partitions) for number in numbers]
        for number, line in zip(numbers, written, strict=True):
            entry_path(log.lake, log.version + number - before.batch).write_text(_entry(line, number))
        files.append(_rows_of(log, numbers, written))
    reached = replace(before, batch=batches - 1, clock=START_MS + batches * EVERY_MS)
    last = {p: (batches - partitions + p, f"{batches - partitions + p:032x}") for p in range(partitions)}
    offset = batches * 1_000 // partitions
    known = {p: replace(each, last=last[p], next_offset=offset) for p, each in before.partitions.items()}
    reached = replace(reached, partitions=known)
    compaction = after_compaction(reached, range(partitions), attempt=uuid4().hex, clock=reached.clock)
    for partition in range(partitions):
        files += _state_of(log, partition, compaction, held)
    version = log.version + batches - before.batch
    info = commit_info(compaction, compaction.to_json())
    actions = [info, transaction(compaction), *(add(file, changes_data=False) for file in files)]
    entry_path(log.lake, version).write_text("\n".join(map(json.dumps, actions)))
    table = load(log.lake, log.version)
    table.apply(version, actions)
    write_checkpoint(log.lake, version, table.actions())
    return compaction


def _line(like: Document, number: int, partitions: int) -> str:
    """Return the document of a batch like `like`, with another number and partition."""
    partition, attempt = str(number % partitions), f"{number:032x}"
    own = {name: {partition: next(iter(like[name].values()))} for name in ("counts", "measures", "totals", "measured")}
    said = {
        "batch": number,
        "attempt": attempt,
        "clock": START_MS + number * EVERY_MS,
        "last": {partition: [number, attempt]},
    }
    return json.dumps({**like, **own, **said}, separators=(",", ":"))


def _entry(document: str, number: int) -> str:
    info = {"operation": "WRITE", "operationParameters": {"mode": "Append", "action": "batch"}, "tidegate": document}
    transaction_of = {"txn": {"appId": f"tidegate/{NAME}", "version": number}}
    return json.dumps({"commitInfo": info}) + "\n" + json.dumps(transaction_of)


def _rows_of(log: OperatorLog, numbers: range, documents: list[str]) -> DataFile:
    rows = {
        "batch": pa.array(numbers, pa.int64()),
        "seq": pa.array([0] * len(numbers), pa.int64()),
        "value": [document.encode() for document in documents],
        "timestamp": pa.array([START_MS + number * EVERY_MS for number in numbers], pa.int64()),
    }
    attempt = uuid4().hex
    return write_file(log.lake, Naming(log.format, numbers.stop, attempt, 0), "meta", META_PARTITION, pa.table(rows))


def _state_of(log: OperatorLog, partition: int, compaction: BatchMeta, held: int) -> list[DataFile]:
    """Write the rows of held keys, and an emission of each eighth one; both are of batches all over the log."""
    naming = Naming(log.format, compaction.batch, compaction.attempt, 0)
    known = {
        "batch": pa.array((compaction.batch * key // held for key in range(held)), pa.int64()),
        "seq": pa.array(range(held), pa.int64()),
        "key": pa.array(b"%016d" % key for key in range(held)),
        "value": pa.array(b'{"carrier": "AA", "delay": %d}' % key for key in range(held)),
        "timestamp": pa.array(range(START_MS, START_MS + held), pa.int64()),
        "offset": pa.array(range(held), pa.int64()),
    }
    state = {"op": pa.repeat("put", held), "place": known["timestamp"], "arrival": known["offset"]}
    emissions = pa.table({**known, "cause": pa.repeat("time", held)}).filter(
        pc.equal(pc.bit_wise_and(known["seq"], 7), 0)
    )
    return [
        write_file(log.lake, naming, "state", partition, pa.table(known | state)),
        write_file(log.lake, naming, "emission", partition, emissions),
    ]
