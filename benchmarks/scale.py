"""Large states: 10 million held keys, their recovery from the log and from disk, and batches of 10,000 records.

Batches run from Kafka to `read_committed` output, alternating between an operator that holds 10 million keys and one
that holds 10,000. For recovery the operator runs as in a task, in at most two processes. Keys have 16 bytes, values 50.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.drivers import claimed
from benchmarks.latency import PARTITIONS, started
from benchmarks.load import TIMEOUT_S
from benchmarks.suppression import session
from tests.lakes import lake_at
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.base import read
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.log_schema import FORMAT, log_schema
from tidegate.contracts.operator import Operator, StepResult
from tidegate.contracts.records import Records
from tidegate.devkit.bulk_load import write_columns
from tidegate.devkit.embedded_broker import Broker
from tidegate.kernels.record_format.record_batch import OutgoingColumns
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression.config import SuppressionConfig
from tidegate.runtime.batch_loop.driver import OperatorDriver
from tidegate.runtime.batch_loop.next_metadata import first_meta
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.recovery import PartitionLog, recover
from tidegate.state.protocol_decisions import Commit, Wanted
from tidegate.state.upkeep.compaction import Kept, compact

HELD, FEW, BATCH, LOAD = 10_000_000, 10_000, 10_000, 500_000
KEY_WIDTH, VALUE_WIDTH = 16, 50
BATCHES, WARM_BATCHES = 31, 6
OPERATOR, HOUR_MS = "scale", 3_600_000
FIRST_TIMESTAMP, RECORDS_PER_MS, LATENESS_MS = 1_700_000_000_000, 10, 1_000


def operator(held: int) -> Operator:
    """Return an operator that emits the oldest key when it holds more than `held` keys."""
    return operator_for(read(SuppressionConfig, holding(held) | {"input": "in"}))


def holding(held: int) -> dict[str, Any]:
    """Return the configuration of that operator."""
    return {"kind": "suppression", "buffer": {"max_keys": held, "when_full": "emit"}}


def records(first: int, keys: np.ndarray) -> Records:
    """Return one record per key, with offsets from `first` on and timestamps up to a second out of order."""
    count, width = len(keys), KEY_WIDTH + VALUE_WIDTH
    data = np.full((count, width), ord("v"), np.uint8)
    data[:, :KEY_WIDTH] = np.frombuffer(b"customer-0000000", np.uint8)
    for digit in range(10):
        data[:, KEY_WIDTH - 1 - digit] = ord("0") + keys // 10**digit % 10
    offset = np.arange(first, first + count, dtype=np.int64)
    start = np.arange(count, dtype=np.int64) * width
    lateness = np.random.default_rng(first).integers(0, LATENESS_MS, count)
    return Records(
        data=data.ravel(),
        offset=offset,
        timestamp=FIRST_TIMESTAMP + offset // RECORDS_PER_MS - lateness,
        key_start=start,
        key_length=np.full(count, KEY_WIDTH, np.int64),
        value_start=start + KEY_WIDTH,
        value_length=np.full(count, VALUE_WIDTH, np.int64),
        headers_start=start,
        headers_length=np.zeros(count, np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class PartitionRun:
    """A partition before its next batch: how many keys it will hold and how many records it has read."""

    folder: Path
    partition: int
    held: int
    epoch: int = 1
    batch: int = 0
    version: int = 0
    read: int = 0
    last: Commit | None = None
    snapshot: int = -1
    stream_time: int = NO_STREAM_TIME

    @property
    def log(self) -> Path:
        """The operator's log."""
        return self.folder / "lake" / OPERATOR

    def after(self, step: StepResult) -> PartitionRun:
        """Return the share after the next batch is committed."""
        batch = self.batch + 1
        return replace(
            self,
            batch=batch,
            last=(batch, f"a{batch}"),
            read=self.read + step.counts.records_in,
            stream_time=step.stream_time,
            version=self.version + 1,
        )

    def work(self, some: Records | None) -> tuple[StepResult | None, list[DataFile], str]:
        """Recover the state and, if there is one, run the batch up to its commit.

        Return the result, the files written and how the state was recovered.
        """
        wanted = Wanted(epoch=self.epoch, batch=self.batch + 1, last=self.last, snapshot=self.snapshot)
        token = (self.epoch, self.batch + 1)
        lock = LocalState.lock(self.folder / "state", self.partition, operator=OPERATOR, table_id="t", token=token)
        with lock as local:
            source = PartitionLog(
                log=lake_at(self.log), version=self.version, partition=self.partition, stream_time=self.stream_time
            )
            found = recover(local, operator(self.held), wanted, source)
            if some is None:
                return None, [], found.plan.reason
            local.begin(self.epoch, self.batch + 1, f"a{self.batch + 1}")
            step = found.state.step(some, 0)
            local.complete(step.undo)
            files = self._write(step)
        return step, files, found.plan.reason

    def _write(self, step: StepResult) -> list[DataFile]:
        tables = {"state": step.changes, "emission": step.emissions}
        rows = [Rows(kind, self.partition, table) for kind, table in tables.items()]
        naming = Naming(FORMAT, self.batch + 1, f"a{self.batch + 1}", 0)
        return list(write_rows(lake_at(self.log), naming, rows, topic="in"))


def measure(progress: Callable[[str], Any], held: int = HELD) -> dict[str, float]:
    """Return seconds, milliseconds and bytes by the names of the bounds, and the figures behind them."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for partitions in (1, 4):
            progress(f"filling {partitions} partition(s) with {held:,} keys")
            shares = fill(Path(scratch) / str(partitions), held, partitions)
            figures |= recovery(shares, progress)
            if partitions == 1:
                figures["bytes_per_held_record"] = overhead(shares[0])
    many_ms, few_ms = batch_ms(progress)
    return figures | {"many_ms": many_ms, "few_ms": few_ms, "batch_ratio": many_ms / few_ms}


def fill(folder: Path, held: int, partitions: int) -> list[PartitionRun]:
    """Fill the partitions with that many keys together, in their local states and in the compacted log."""
    log = OperatorLog.open(
        lake_at(folder / "lake" / OPERATOR), OPERATOR, log_schema(operator(held).columns), create=True
    )
    shares = [PartitionRun(folder=folder, partition=p, held=held // partitions) for p in range(partitions)]
    while shares[0].read < shares[0].held:
        steps = [share.work(_new_keys(share, min(LOAD, share.held - share.read))) for share in shares]
        commit(log, shares[0].batch + 1, [file for _, files, _ in steps for file in files])
        shares = [share.after(step) for share, (step, _, _) in zip(shares, steps, strict=True) if step]
    batch = shares[0].batch + 1
    compact(log, meta(batch, "compaction"), Kept(slot=("key",)), rewind_window_ms=HOUR_MS)
    return [replace(share, batch=batch, snapshot=batch, version=log.version) for share in shares]


def _new_keys(share: PartitionRun, count: int) -> Records:
    return records(share.read, np.arange(share.read, share.read + count))


def commit(log: OperatorLog, batch: int, files: list[DataFile]) -> None:
    """Commit the files as the batch."""
    log.commit(meta(batch, "batch"), files)


def meta(batch: int, action: Any) -> BatchMeta:
    """Return minimal metadata of the batch."""
    return replace(first_meta(OPERATOR, "t", 0, {"": {}}), epoch=1, batch=batch, attempt=f"a{batch}", action=action)


def recovery(shares: list[PartitionRun], progress: Callable[[str], Any]) -> dict[str, float]:
    """Return the seconds until all partitions have their states, in new processes: from disk, then from the log."""
    moved = [replace(share, folder=share.folder) for share in shares]
    found = {}
    for how, epoch in (("local", 2), ("log", 3)):
        if how == "log":
            for path in (shares[0].folder / "state").rglob("header"):
                path.unlink()
        with _processes(min(2, len(shares))) as pool:
            list(pool.map(_warm, range(4)))
            began = time.perf_counter()
            recovered = list(pool.map(_recover, [replace(share, epoch=epoch) for share in moved]))
            found[f"{how}_recovery_s_{len(shares)}p"] = time.perf_counter() - began
        progress(f"{how}: {found[f'{how}_recovery_s_{len(shares)}p']:.1f} s, {recovered[0]}")
    return found


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _warm(_: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        fill(Path(scratch), 1_000, 1)
    time.sleep(0.2)


def _recover(share: PartitionRun) -> str:
    return share.work(None)[2]


def overhead(share: PartitionRun) -> float:
    """Return the bytes on disk (and so in memory) per held record, without key and value."""
    folder = share.folder / "state" / OPERATOR / "t" / str(share.partition)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return size / share.held - KEY_WIDTH - VALUE_WIDTH


def batch_ms(progress: Callable[[str], Any]) -> tuple[float, float]:
    """Return the median milliseconds of a batch with many and with few keys held, from plan to published."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        here = (broker.bootstrap, Path(folder))
        many, few = holding(HELD), holding(FEW)
        with session() as spark, started(spark, *here, many) as many_held, started(spark, *here, few) as few_held:
            return alternating(broker.bootstrap, {HELD: many_held, FEW: few_held}, in_turn, progress)


Started = tuple[OperatorDriver, tuple[str, str]]


def alternating(
    bootstrap: str,
    services: dict[int, Started],
    timestamps: Callable[[int, np.ndarray], np.ndarray],
    progress: Callable[[str], Any],
) -> tuple[float, float]:
    """Return the median batch milliseconds of the services with HELD and with FEW keys, in this order.

    `timestamps(first, keys)` returns the timestamps of records with those keys, of which `first` is the number of
    earlier records.
    """
    took: dict[int, list[float]] = {HELD: [], FEW: []}
    for held, (driver, (topic, _)) in services.items():
        progress(f"filling the service with {held:,} keys")
        produce(bootstrap, topic, np.arange(held), timestamps(0, np.arange(held)))
        driver.run(Event(), until_caught_up=True)
    for number in range(BATCHES + WARM_BATCHES):
        for held, (driver, (topic, _)) in services.items():
            keys = mixed(held, number)
            produce(bootstrap, topic, keys, timestamps(held + number * BATCH, keys))
            began = time.perf_counter()
            claimed(driver).round()
            took[held].append(1_000 * (time.perf_counter() - began))
    many_ms, few_ms = (median(took[held][WARM_BATCHES:]) for held in (HELD, FEW))
    return many_ms, few_ms


def in_turn(first: int, keys: np.ndarray) -> np.ndarray:
    """Return timestamps that grow from record to record."""
    return FIRST_TIMESTAMP + (first + np.arange(len(keys))) // RECORDS_PER_MS


def mixed(held: int, number: int) -> np.ndarray:
    """Return keys of which every other one is new, so that the oldest is emitted; the others are held."""
    newest = held + number * BATCH // 2
    keys = np.random.default_rng(number).integers(newest - held, newest, BATCH)
    keys[::2] = np.arange(newest, newest + BATCH // 2)
    return keys


def produce(bootstrap: str, topic: str, keys: np.ndarray, timestamps: np.ndarray) -> None:
    """Produce one record per key and timestamp, to the key's partition."""
    client = KafkaClient({"bootstrap.servers": bootstrap})
    for start in range(0, len(keys), LOAD):
        some, at = keys[start : start + LOAD], timestamps[start : start + LOAD]
        for partition in range(PARTITIONS):
            mine = np.flatnonzero(some % PARTITIONS == partition)
            write_columns(client, topic, partition, _outgoing(some[mine], at[mine]), TIMEOUT_S)
    client.close()


def _outgoing(keys: np.ndarray, timestamps: np.ndarray) -> OutgoingColumns:
    digits = pc.utf8_lpad(pa.array(keys).cast(pa.string()), KEY_WIDTH - len("customer"), "0")
    return OutgoingColumns(
        key=pc.binary_join_element_wise("customer", digits, "").cast(pa.binary()),
        value=pa.array([b"v" * VALUE_WIDTH]).take(pa.array(np.zeros(len(keys), np.int64))),
        headers=pa.nulls(len(keys), pa.binary()),
        timestamp=timestamps,
    )
