"""What the log says about earlier batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from tidegate.contracts.schema import META_PARTITION, BatchMeta, Document, after_document, is_complete
from tidegate.state.decisions import Commit
from tidegate.state.delta_log.data_files import DataFile, read_files
from tidegate.state.delta_log.log_entries import newest_version
from tidegate.state.delta_log.metadata import documents_before
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep.batch_history import documents, overlapping, recorded_through

LINEAGE = 64
"""Earlier commits that a task is told of; a local state that is older is rebuilt, which takes hardly longer then."""

LINEAGE_ENTRIES = 256
"""Newest entries that a claim looks at for such commits."""


def metas(log: OperatorLog, after_batch: int = -1) -> list[BatchMeta]:
    """Return the metadata of the log's batches above `after_batch`, oldest first."""
    newest = log.newest()
    return [] if newest is None else metas_of(log, range(after_batch + 1, newest.batch + 1))


def metas_of(log: OperatorLog, batches: range) -> list[BatchMeta]:
    """Return the metadata of these batches, oldest first; what is read is theirs, and what it builds upon."""
    found = documents(log, batches)
    if found and not is_complete(found[0]):
        found = documents(log, range(found[0]["base"], batches.start)) + found
    return [meta for meta in _put_together(found) if meta.batch >= batches.start]


def since(log: OperatorLog, clock_ms: int) -> list[BatchMeta]:
    """Return the metadata of the batches from that clock on, oldest first, and before them that of the batch before."""
    newest, first = log.newest(), -1
    if newest is None:
        return []
    for _version, document in documents_before(log.path, log.version):
        first = document["batch"]
        if document["clock"] < clock_ms:
            break
    return metas_of(log, range(first, newest.batch + 1))


def _put_together(found: Iterable[Document]) -> Iterator[BatchMeta]:
    """Return the metadata as far as it is known: changes against a batch that retention has dropped say too little."""
    before: BatchMeta | None = None
    for document in found:
        if not is_complete(document) and (before is None or before.batch + 1 != document["batch"]):
            before = None
            continue
        before = after_document(before, document)
        yield before


def unbroken(log: OperatorLog) -> range:
    """Return the newest batches of the log without a gap. Only what retention has left of older ones has gaps.

    Files whose rows are as many as the batches that they span have no gap; of others the batches are read.
    """
    newest = log.newest()
    if newest is None:
        return range(0)
    recorded = recorded_through(newest)
    start = recorded + 1 if recorded >= 0 else documents(log, range(newest.batch + 1))[0]["batch"]
    for group in reversed(overlapping(log.data_files("meta", META_PARTITION))):
        first, last = min(file.min_batch for file in group), max(file.max_batch for file in group)
        if last + 1 < start:
            break
        if sum(file.rows for file in group) < last + 1 - first:
            return range(_start_of_newest(log, group), newest.batch + 1)
        start = first
    return range(start, newest.batch + 1)


def _start_of_newest(log: OperatorLog, files: Sequence[DataFile]) -> int:
    """Return the first of the files' newest batches without a gap."""
    batches = read_files(log.path, files, log.schema, ["batch"]).column("batch").to_numpy()
    gaps = np.flatnonzero(np.diff(batches) != 1)
    return int(batches[gaps[-1] + 1] if len(gaps) else batches[0])


def lineage(log: OperatorLog, newest: BatchMeta) -> dict[int, list[Commit]]:
    """Return per partition the commits that touched it since its newest snapshot, oldest first.

    Commits are looked for in the newest entries alone: what they cost does not grow with the log.
    """
    found: dict[int, list[Commit]] = {}
    for _version, document in islice(documents_before(log.path, log.version), LINEAGE_ENTRIES):
        for partition in touched(document):
            if document["batch"] > newest.snapshot.get(partition, -1):
                found.setdefault(partition, []).insert(0, (document["batch"], document["attempt"]))
    return found


def grow(lineage: dict[int, list[Commit]], meta: BatchMeta) -> None:
    """Add the commit to the lineage of the partitions that it touched."""
    for partition in meta.counts:
        commits = lineage.setdefault(partition, [])
        commits.append(meta.last[partition])
        del commits[:-LINEAGE]


def above_snapshots(lineage: dict[int, list[Commit]], newest: BatchMeta) -> dict[int, list[Commit]]:
    """The lineage without the commits before each partition's newest snapshot: a state of them is rebuilt."""
    return {
        partition: [commit for commit in commits if commit[0] >= newest.snapshot.get(partition, -1)]
        for partition, commits in lineage.items()
    }


def touched(document: Document) -> Iterable[int]:
    """Return the partitions whose state the batch changed."""
    return map(int, document.get("counts", ()))


def has_version(log: Path, version: int | None) -> bool:
    """True when the folder has an operator log, and that version of it if one is given."""
    newest = newest_version(log)
    return newest is not None and (version is None or version <= newest)
