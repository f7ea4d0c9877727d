"""Read the metadata of earlier batches from an operator log, and track the commits of each partition (its lineage)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from tidegate.contracts.batch_metadata import BatchMeta, Document, after_document, is_complete
from tidegate.contracts.errors import UserError
from tidegate.contracts.log_schema import META_PARTITION
from tidegate.state.delta_log.data_files import DataFile, read_files
from tidegate.state.delta_log.log_entries import newest_version, oldest_readable, oldest_version
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.newest_metadata import documents_before
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import Commit
from tidegate.state.upkeep.batch_history import documents, overlapping, recorded_through

LINEAGE = 64
"""Number of earlier commits per partition that a task is given; an older local state is rebuilt.

Catching up an older state would take hardly less time than a rebuild.
"""

LINEAGE_ENTRIES = 256
"""Number of the newest log entries in which a claim looks for these commits."""


def metas(log: LogVersion, after_batch: int = -1) -> list[BatchMeta]:
    """Return the metadata of all batches in the log after `after_batch`, oldest first."""
    newest = log.newest()
    return [] if newest is None else metas_of(log, range(after_batch + 1, newest.batch + 1))


def metas_of(log: LogVersion, batches: range) -> list[BatchMeta]:
    """Return the metadata of these batches, oldest first.

    Besides the documents of these batches, only those back to the complete metadata that they build upon are read.
    """
    found = documents(log, batches) if batches else []
    if found and not is_complete(found[0]):
        found = documents(log, range(found[0]["base"], batches.start)) + found
    return [meta for meta in _put_together(found) if meta.batch >= batches.start]


def metas_since(log: LogVersion, clock_ms: int) -> list[BatchMeta]:
    """Return the metadata of the newest batches, back to and including the first one with a clock before `clock_ms`.

    They are ordered from the oldest. If no batch has such a clock, return all that the log's entries reach.
    """
    newest, first = log.newest(), -1
    if newest is None:
        return []
    for _version, document in documents_before(log.lake, log.version):
        first = document["batch"]
        if document["clock"] < clock_ms:
            break
    return metas_of(log, range(first, newest.batch + 1))


def _put_together(found: Iterable[Document]) -> Iterator[BatchMeta]:
    """Yield the metadata that the documents stand for, in order.

    Skip documents that only list changes against a batch whose metadata is missing, because retention dropped it.
    """
    before: BatchMeta | None = None
    for document in found:
        if not is_complete(document) and (before is None or before.batch + 1 != document["batch"]):
            before = None
            continue
        before = after_document(before, document)
        yield before


def gapless_range(log: LogVersion) -> range:
    """Return the longest range of batches that ends with the newest one and has no gap.

    Gaps exist only among older batches, where retention has dropped some. `meta` files with as many rows as the batches
    that they span have no gap, so their rows are not read; of other files the column `batch` is read.
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


def _start_of_newest(log: LogVersion, files: Sequence[DataFile]) -> int:
    """Return the first batch of the gapless range that ends with the newest batch of the files."""
    batches = read_files(log.lake, files, log.schema, ["batch"]).column("batch").to_numpy()
    gaps = np.flatnonzero(np.diff(batches) != 1)
    return int(batches[gaps[-1] + 1] if len(gaps) else batches[0])


def lineage(log: LogVersion, newest: BatchMeta) -> dict[int, list[Commit]]:
    """Return per partition the commits that changed its state since its newest snapshot, oldest first.

    Only the newest LINEAGE_ENTRIES log entries are read, so the cost does not grow with the log.
    """
    found: dict[int, list[Commit]] = {}
    # rule: bounded-by-log-length/lineage
    for _version, document in islice(documents_before(log.lake, log.version), LINEAGE_ENTRIES):
        for partition in touched(document):
            known = newest.partitions.get(partition)  # a rescale may have taken the partition away
            if known is not None and document["batch"] > known.snapshot_batch:
                found.setdefault(partition, []).insert(0, (document["batch"], document["attempt"]))
    return found


def extend_lineage(lineage: dict[int, list[Commit]], meta: BatchMeta) -> None:
    """Add the commit to the lineage of each partition that it changed, and keep the newest LINEAGE commits of each."""
    for partition in meta.changed:
        commits = lineage.setdefault(partition, [])
        commits.append((meta.batch, meta.attempt))
        del commits[:-LINEAGE]


def above_snapshots(lineage: dict[int, list[Commit]], newest: BatchMeta) -> dict[int, list[Commit]]:
    """Return the lineage without the commits before each partition's newest snapshot.

    A local state at one of those commits has to be rebuilt.
    """
    return {
        partition: [commit for commit in commits if commit[0] >= newest.partitions[partition].snapshot_batch]
        for partition, commits in lineage.items()
    }


def touched(document: Document) -> Iterable[int]:
    """Return the partitions whose state the batch changed, by its metadata document."""
    return map(int, document.get("counts", ()))


def has_version(log: Lake, version: int | None) -> bool:
    """Return True if there is an operator log, whose newest version is at least `version` if one is given."""
    newest = newest_version(log)
    return newest is not None and (version is None or version <= newest)


def readable_versions(log: Lake, newest: int) -> range:
    """Return the versions of the log that can be read, up to the newest one."""
    oldest = oldest_readable(log, oldest_version(log, newest), newest)
    return range(newest if oldest is None else oldest, newest + 1)


def version_after(log: Lake, versions: range, batch: int, guess: int = -1) -> int | None:
    """Return the version of the log just after the batch, or after the one before it if there was none of the number.

    None if no such version can be read. `versions`: those that can be; `guess`: one of them that is tried first. A
    search reads a number of entries that grows with the logarithm of their number.
    """
    if guess in versions and batch_at(log, guess) == batch < batch_at(log, guess + 1):
        return guess
    found = bisect_right(versions, batch, key=lambda version: batch_at(log, version)) - 1
    return versions[found] if found >= 0 and batch_at(log, versions[found]) >= 0 else None


def log_after(lake: Lake, batch: int | None) -> LogVersion:
    """Return the log just after the batch, or after the one before it if there was none of the number; None: now.

    Raise UserError if there is no log, or if its entries no longer reach back to the batch.
    """
    newest = newest_version(lake)
    if newest is None:
        raise UserError("the operator has no log yet", value=lake.place, remedy="start the operator: tidegate run")
    if batch is None:
        return LogVersion.at(lake, newest)
    return LogVersion.at(lake, _reached(version_after(lake, readable_versions(lake, newest), batch), batch))


def version_before(newest: LogVersion, oldest: int, batch: int) -> int:
    """Return the version of the log just after a batch, as `log_after` does.

    `newest` is the log at a later one, and `oldest` the oldest version that can be read.
    """
    meta = newest.newest()
    assert meta is not None and batch < meta.batch, "the batch is an earlier one"
    guess = newest.version - (meta.batch - batch)  # if no entries of other programs follow it
    versions = range(oldest, newest.version + 1)
    return _reached(version_after(newest.lake, versions, batch, guess), batch)


def _reached(version: int | None, batch: int) -> int:
    if version is None:
        remedy = "name a later batch; `rewind_window` says how far back a log can be read"
        raise UserError("the log no longer reaches back to that batch", value=batch, remedy=remedy)
    return version


def batch_at(log: Lake, version: int) -> int:
    """Return the newest batch at the version; -1 if its entry, and those of foreign entries before it, have none."""
    return next((document["batch"] for _version, document in documents_before(log, version)), -1)
