"""What the log says about earlier batches. May import: contracts, state."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from tidegate.contracts.schema import META_PARTITION, BatchMeta
from tidegate.state.data_files import read_files
from tidegate.state.log_entries import newest_version
from tidegate.state.operator_log import OperatorLog

Commit = tuple[int, str]


def metas(log: OperatorLog, after_batch: int = -1) -> list[BatchMeta]:
    """The metadata of the log's batches above `after_batch`, oldest first."""
    rows = log.read("meta", META_PARTITION, after_batch, ["value"])
    return [BatchMeta.from_json(value.decode()) for value in rows.column("value").to_pylist()]


def unbroken(log: OperatorLog) -> range:
    """The newest batches of the log without a gap. Only what retention has left of older ones has gaps."""
    batches = log.read("meta", META_PARTITION, columns=["batch"]).column("batch").to_numpy()
    gaps = np.flatnonzero(np.diff(batches) != 1)
    newest = batches[gaps[-1] + 1 :] if len(gaps) else batches
    return range(int(newest[0]), int(newest[-1]) + 1) if len(newest) else range(0)


def metas_of(log: OperatorLog, batches: range) -> list[BatchMeta]:
    """The metadata of these batches, oldest first; other files than theirs are not read."""
    files = [
        file
        for file in log.data_files("meta", META_PARTITION, after_batch=batches.start - 1)
        if file.min_batch < batches.stop
    ]
    rows = read_files(log.path, files, log.schema, ["batch", "value"], after_batch=batches.start - 1)
    values = rows.filter(pc.field("batch") < batches.stop).column("value").to_pylist()
    return [BatchMeta.from_json(value.decode()) for value in values]


def lineage(log: OperatorLog, newest: BatchMeta) -> dict[int, list[Commit]]:
    """Per partition the commits that touched it since its newest snapshot, oldest first."""
    snapshots = newest.snapshot
    oldest = min((snapshots.get(partition, -1) for partition in newest.last), default=-1)
    found: dict[int, list[Commit]] = {}
    for meta in metas(log, oldest):
        for partition in touched(meta):
            if meta.batch > snapshots.get(partition, -1):
                found.setdefault(partition, []).append((meta.batch, meta.attempt))
    return found


def above_snapshots(lineage: dict[int, list[Commit]], newest: BatchMeta) -> dict[int, list[Commit]]:
    """The lineage without the commits before each partition's newest snapshot: a state of them is rebuilt."""
    return {
        partition: [commit for commit in commits if commit[0] >= newest.snapshot.get(partition, -1)]
        for partition, commits in lineage.items()
    }


def touched(meta: BatchMeta) -> Iterable[int]:
    """The partitions whose state the batch changed."""
    return meta.counts


def has_version(log: Path, version: int | None) -> bool:
    """True when the folder has an operator log, and that version of it if one is given."""
    newest = newest_version(log)
    return newest is not None and (version is None or version <= newest)
