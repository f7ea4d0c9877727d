"""A commit's metadata is proportional to what its batch changed, and is read with a bounded number of reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.state.logs import OPERATOR, meta, new_log
from tidegate.contracts.schema import BatchMeta, Counts
from tidegate.runtime.batch_loop.metadata import after_batch
from tidegate.runtime.task.messages import PartitionResult
from tidegate.state.delta_log.log_entries import entry_path
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
    return replace(
        meta(log, 1, action="claim"),
        config="0" * 16,
        applied="0" * 16,
        topics={"in": "u" * 22, "out": "v" * 22},
        offsets={"in": dict.fromkeys(PARTITIONS, 10**9)},
        stream_time=reached,
        last=dict.fromkeys(PARTITIONS, (1, uuid4().hex)),
        totals=dict.fromkeys(PARTITIONS, counted),
        measured=dict.fromkeys(PARTITIONS, dict.fromkeys(MEASURES, 10**9)),
        snapshot=dict.fromkeys(PARTITIONS, 1),
        output=dict.fromkeys(PARTITIONS, 1),
        active=reached,
    )


def touching(before: BatchMeta, partition: int) -> BatchMeta:
    """The metadata of the batch after that one, in which one partition has read 1,000 records."""
    result = PartitionResult(
        partition=partition,
        action="batch",
        next_offset=before.offsets["in"][partition] + 1_000,
        stream_time=before.stream_time[partition] + 1_000,
        counts=Counts(records_in=1_000, applied=1_000, emitted=900, held=123_456, held_bytes=12_345_678),
        measures=MEASURES,
        files=(),
        producer=None,
    )
    clock, attempt = before.clock + 1_000, uuid4().hex
    return after_batch(before, [result], topic="in", batch=before.batch + 1, attempt=attempt, clock=clock)


def metadata_bytes(log: OperatorLog, batch: int) -> int:
    """Bytes of the newest entry and of all that its batch wrote for its metadata."""
    rows = log.path.glob(f"kind=meta/partition=-1/{batch}-*.parquet")
    return entry_path(log.path, log.version).stat().st_size + sum(file.stat().st_size for file in rows)


def test_of_100_partitions_a_batch_that_touches_one_writes_at_most_4_kb_of_metadata(tmp_path: Path) -> None:
    log = new_log(tmp_path / OPERATOR)
    newest = claim_of_100_partitions(log)
    log.commit(newest, [])
    for partition in (7, 8, 7):
        newest = touching(newest, partition)
        log.commit(newest, [])
        assert metadata_bytes(log, newest.batch) <= 4_000
