"""The cost of commits to the operator log over days: 4 partitions, compacted as a driver does it, no Spark, no Kafka.

A service that commits every 300 ms makes 4,000 commits in 20 minutes; here they come without pauses. So that other load
on the machine does not matter, minutes 19 and 20 of an old log run commit by commit alongside minutes 1 and 2 of a new
one. This is repeated with an old log of 10,000 and 50,000 entries, as after hours. The entries added for that are
copies without data files, because data files do not affect the figures.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from uuid import uuid4

import pyarrow as pa

from tests.lakes import entry_path, lake_at
from tidegate.contracts.batch_metadata import BatchMeta, PartitionMeta
from tidegate.contracts.log_schema import log_schema
from tidegate.runtime.batch_loop.next_metadata import first_meta
from tidegate.state.delta_log.attempt_files import Naming, Rows, write_rows
from tidegate.state.delta_log.checkpoints import write_checkpoint
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.state.delta_log.log_entries import read_actions
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.protocol_decisions import compaction_due
from tidegate.state.upkeep.compaction import Kept, compact

EVERY_MS = 300
PER_MINUTE = 60_000 // EVERY_MS
PARTITIONS, KEYS = 4, 50
OPERATOR = "commits"
WEEK_MS = 7 * 24 * 3_600_000
LENGTHS = (10_000, 50_000)


@dataclass
class Service:
    """A log, and the cost of each commit and compaction: seconds, and live files after each commit."""

    log: OperatorLog
    batch: int = 0
    compacted: int = 0
    commits: list[float] = field(default_factory=list)
    compactions: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def run(self, commits: int) -> None:
        """Commit that many more batches, with compactions when they are due."""
        for _ in range(commits):
            self._commit()
            if self._compaction_due():
                self._compact()

    def _commit(self) -> None:
        meta = self._meta("batch")
        rows = [
            Rows(kind, partition, small_rows(kind)) for kind in ("state", "emission") for partition in range(PARTITIONS)
        ]
        written = write_rows(self.log.lake, Naming(self.log.format, meta.batch, meta.attempt, 0), rows, topic="t")
        began = time.perf_counter()
        self.log.commit(meta, written)
        self.commits.append(time.perf_counter() - began)
        self.files.append(self.log.size.files)

    def _compaction_due(self) -> bool:
        tally = self.log.size
        held = PARTITIONS * KEYS
        return compaction_due(self.batch - self.compacted, tally.state_rows, held, tally.files) is not None

    def _compact(self) -> None:
        meta = self._meta("compaction")
        began = time.perf_counter()
        compact(self.log, meta, Kept(slot=("key",)), rewind_window_ms=WEEK_MS)
        self.compactions.append(time.perf_counter() - began)
        self.compacted = self.batch

    def _meta(self, action: str) -> BatchMeta:
        """Return the metadata of the next batch, about as long as that of a service."""
        self.batch += 1
        attempt = uuid4().hex
        known = PartitionMeta(
            next_offset=self.batch,
            stream_time=self.batch,
            last=(self.batch, attempt),
            output_batch=self.batch,
            active_clock=self.batch,
        )
        first = first_meta(OPERATOR, self.log.table_id, self.batch * EVERY_MS, {"t": {}})
        partitions = dict.fromkeys(range(PARTITIONS), known)
        return replace(first, epoch=1, batch=self.batch, attempt=attempt, action=action, partitions=partitions)


def small_rows(kind: str) -> pa.Table:
    """Return the rows that a small batch writes per partition."""
    columns = {
        "key": pa.array([b"customer-%07d" % key for key in range(KEYS)]),
        "value": pa.array([b"v" * 50] * KEYS),
        "timestamp": pa.array(range(KEYS), pa.int64()),
    }
    return pa.table({"op": ["put"] * KEYS, **columns} if kind == "state" else columns)


def measure(say: Callable[[str], None] = print) -> dict[str, float]:
    """Return the median milliseconds per commit and the most live files of a new and an old log, and their ratios."""
    with tempfile.TemporaryDirectory() as folder:
        new, old = _service(Path(folder) / "new"), _service(Path(folder) / "old")
        for minute in range(1, 19):
            old.run(PER_MINUTE)
            say(f"minute {minute}: {_median_ms(old.commits, PER_MINUTE):.1f} ms a commit")
        _side_by_side(new, old, 2 * PER_MINUTE)
        figures = _flatness(new, old)
        for entries in LENGTHS:
            _lengthen(old.log, entries)
            began = time.perf_counter()
            old.log = OperatorLog.open(old.log.lake, OPERATOR, old.log.schema, create=False)
            opened_ms = (time.perf_counter() - began) * 1_000
            new = _service(Path(folder) / f"new beside {entries}")
            _side_by_side(new, old, PER_MINUTE)
            commit_ms = [_median_ms(service.commits, PER_MINUTE) for service in (new, old)]
            say(f"{entries:,} entries: {commit_ms[1]:.1f} ms a commit, {commit_ms[0]:.1f} ms beside it in a new log")
            figures |= {
                f"commit_ms_at_{entries}": commit_ms[1],
                f"commit_time_ratio_at_{entries}": commit_ms[1] / commit_ms[0],
                f"open_ms_at_{entries}": opened_ms,
            }
        return figures


def _service(folder: Path) -> Service:
    return Service(OperatorLog.open(lake_at(folder / OPERATOR), OPERATOR, log_schema(), create=True))


def _side_by_side(new: Service, old: Service, commits: int) -> None:
    for _ in range(commits):
        new.run(1)
        old.run(1)


def _median_ms(seconds: list[float], last: int) -> float:
    return median(seconds[-last:]) * 1_000


def _flatness(new: Service, old: Service) -> dict[str, float]:
    """Return commit times and live files of the last two minutes of both logs."""
    commit_ms = [_median_ms(service.commits, 2 * PER_MINUTE) for service in (new, old)]
    files = [max(service.files[-2 * PER_MINUTE :]) for service in (new, old)]
    return {
        "commit_ms_minute_2": commit_ms[0],
        "commit_ms_minute_20": commit_ms[1],
        "commit_time_ratio": commit_ms[1] / commit_ms[0],
        "live_files_minute_2": files[0],
        "live_files_minute_20": files[1],
        "live_files_ratio": files[1] / files[0],
        "compaction_ms_minute_20": _median_ms(old.compactions, 3),
    }


def _lengthen(log: OperatorLog, entries: int) -> None:
    """Extend the log to that many entries; the added entries change nothing, and the last one has a checkpoint."""
    info = [action for action in read_actions(log.lake, log.version) or () if "commitInfo" in action]
    for version in range(log.version + 1, entries):
        entry_path(log.lake, version).write_text(json.dumps(info[0]))
    write_checkpoint(log.lake, entries - 1, load(log.lake, entries - 1).actions())
