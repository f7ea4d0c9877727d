"""Big states: 10 million keys held, recovered from the log and from the disk, and a batch of 10,000 records on them.

The operator is worked as a task works it (records in, rows of the log and local state out), by two processes at the
most, without Spark and Kafka: what these add to a batch does not depend on what is held. Keys have 16 bytes, values 50.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tidegate.contracts.config import read
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.operator import Operator, StepResult
from tidegate.contracts.records import Records
from tidegate.contracts.schema import FORMAT, BatchMeta, log_schema
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression.config import SuppressionConfig
from tidegate.state.compaction import compact
from tidegate.state.data_files import DataFile, write_rows
from tidegate.state.decisions import Commit, Wanted
from tidegate.state.local_state import LocalState
from tidegate.state.operator_log import OperatorLog
from tidegate.state.recovery import recover

HELD, FEW, BATCH, LOAD = 10_000_000, 10_000, 10_000, 500_000
KEY_WIDTH, VALUE_WIDTH = 16, 50
BATCHES = 15
OPERATOR, HOUR_MS = "scale", 3_600_000
FIRST_TIMESTAMP, RECORDS_PER_MS, LATENESS_MS = 1_700_000_000_000, 10, 1_000


def operator(held: int) -> Operator:
    """The operator that lets the oldest key go when it holds more than so many."""
    config = {"kind": "suppression", "input": "in", "buffer": {"max_keys": held, "when_full": "emit"}}
    return operator_for(read(SuppressionConfig, config))


def records(first: int, keys: np.ndarray) -> Records:
    """A record for each key, with offsets from `first` on and timestamps up to a second out of order."""
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
class Share:
    """A partition as its next batch finds it: so many keys held, so many records read."""

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

    def after(self, step: StepResult) -> Share:
        """The share when the next batch is committed."""
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
        """The state was recovered, and the batch, if there is one, done up to its commit; tells how it recovered."""
        wanted = Wanted(epoch=self.epoch, batch=self.batch + 1, last=self.last, snapshot=self.snapshot)
        token = (self.epoch, self.batch + 1)
        lock = LocalState.lock(self.folder / "state", self.partition, operator=OPERATOR, table_id="t", token=token)
        with lock as local:
            found = recover(
                local, operator(self.held), self.log, self.version, wanted, self.partition, self.stream_time
            )
            if some is None:
                return None, [], found.use.reason
            local.begin(self.epoch, self.batch + 1, f"a{self.batch + 1}")
            step = found.state.step(some, 0)
            files = self._write(step)
            local.complete()
        return step, files, found.use.reason

    def _write(self, step: StepResult) -> list[DataFile]:
        tables = {"state": step.changes, "emission": step.emissions}
        place = partial(write_rows, self.log, batch=self.batch + 1, topic="in", attempt=f"a{self.batch + 1}")
        return [place(kind, self.partition, table) for kind, table in tables.items() if table.num_rows]


def measure(say: Callable[[str], Any] = print, held: int = HELD) -> dict[str, float]:
    """Seconds, milliseconds and bytes by the names of the bounds, and what they are made of."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for partitions in (1, 4):
            say(f"filling {partitions} partition(s) with {held:,} keys")
            shares = fill(Path(scratch) / str(partitions), held, partitions)
            figures |= recovery(shares, say)
            if partitions == 1:
                figures["bytes_per_held_record"] = overhead(shares[0])
                figures["many_ms"] = 1_000 * batch_s(shares[0])
        few = fill(Path(scratch) / "few", FEW, 1)
        figures["few_ms"] = 1_000 * batch_s(few[0])
    return figures | {"batch_ratio": figures["many_ms"] / figures["few_ms"]}


def fill(folder: Path, held: int, partitions: int) -> list[Share]:
    """The partitions hold that many keys together, in their local states and in the compacted log."""
    log = OperatorLog.open(folder / "lake" / OPERATOR, OPERATOR, log_schema(operator(held).columns), create=True)
    shares = [Share(folder=folder, partition=p, held=held // partitions) for p in range(partitions)]
    while shares[0].read < shares[0].held:
        steps = [share.work(_new_keys(share, min(LOAD, share.held - share.read))) for share in shares]
        commit(log, shares[0].batch + 1, [file for _, files, _ in steps for file in files])
        shares = [share.after(step) for share, (step, _, _) in zip(shares, steps, strict=True) if step]
    batch = shares[0].batch + 1
    compact(log, meta(batch, "compaction"), slot=("key",), keep_output_ms=None, rewind_window_ms=HOUR_MS)
    return [replace(share, batch=batch, snapshot=batch, version=log.version) for share in shares]


def _new_keys(share: Share, count: int) -> Records:
    return records(share.read, np.arange(share.read, share.read + count))


def commit(log: OperatorLog, batch: int, files: list[DataFile]) -> None:
    """The files are the batch."""
    log.commit(meta(batch, "batch"), files)


def meta(batch: int, action: Any) -> BatchMeta:
    """Metadata that names the batch."""
    return BatchMeta(
        format=FORMAT,
        operator=OPERATOR,
        table_id="t",
        epoch=1,
        batch=batch,
        attempt=f"a{batch}",
        action=action,
        clock=0,
        config="",
    )


def recovery(shares: list[Share], say: Callable[[str], Any]) -> dict[str, float]:
    """Seconds until all partitions have their states, in new processes: from the log, then from the disk."""
    moved = [replace(share, folder=share.folder) for share in shares]
    found = {}
    for how, epoch in (("local", 2), ("log", 3)):
        if how == "log":
            for path in (shares[0].folder / "state").rglob("header"):
                path.unlink()
        with _processes(min(2, len(shares))) as pool:
            list(pool.map(_warm, range(4)))
            began = time.perf_counter()
            told = list(pool.map(_recover, [replace(share, epoch=epoch) for share in moved]))
            found[f"{how}_recovery_s_{len(shares)}p"] = time.perf_counter() - began
        say(f"{how}: {found[f'{how}_recovery_s_{len(shares)}p']:.1f} s, {told[0]}")
    return found


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _warm(_: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        fill(Path(scratch), 1_000, 1)
    time.sleep(0.2)


def _recover(share: Share) -> str:
    import resource

    reason = share.work(None)[2]
    return f"{reason}; {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB"


def overhead(share: Share) -> float:
    """Bytes on disk (and so in memory) for each held record, beside its key and value."""
    folder = share.folder / "state" / OPERATOR / "t" / str(share.partition)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return size / share.held - KEY_WIDTH - VALUE_WIDTH


def batches(share: Share) -> Iterator[Records]:
    """Batches of which every other record brings a new key, which makes the oldest leave; the others are updates."""
    newest = share.read
    for number in range(BATCHES + 3):
        keys = np.random.default_rng(number).integers(newest - share.held, newest, BATCH)
        keys[::2] = np.arange(newest, newest + BATCH // 2)
        yield records(share.read + number * BATCH, keys)
        newest += BATCH // 2


def batch_s(share: Share) -> float:
    """The median of the seconds that a batch takes, its commit included."""
    log = OperatorLog.open(share.log, OPERATOR, log_schema(operator(share.held).columns), create=False)
    share = replace(share, epoch=4, version=log.version)
    took = []
    for some in batches(share):
        began = time.perf_counter()
        step, files, _ = share.work(some)
        commit(log, share.batch + 1, files)
        took.append(time.perf_counter() - began)
        assert step is not None
        share = share.after(step)
    return median(took[3:])
