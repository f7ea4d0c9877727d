"""Read the metadata documents of earlier batches from `meta` rows and log entries; write `meta` rows.

Batches up to the newest compaction have `meta` rows; later ones have only their entries. A compaction writes the `meta`
rows of the batches since the previous compaction. So a batch writes its metadata only once, and its entry can be
deleted when the rewind window has passed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta, Document, is_complete
from tidegate.contracts.log_schema import META_PARTITION
from tidegate.state.delta_log.attempt_files import Naming, write_file
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.newest_metadata import documents_before


def documents(log: LogVersion, batches: range) -> list[Document]:
    """Return the metadata documents of these batches, oldest first. Little more than these is read."""
    recorded = recorded_through(log.newest())
    rows = log.read("meta", META_PARTITION, batches.start - 1, ["value"], up_to=min(batches.stop - 1, recorded))
    found = [json.loads(value) for value in rows.column("value").to_pylist()]
    return found + _in_entries(log, range(max(batches.start, recorded + 1), batches.stop))


def _in_entries(log: LogVersion, batches: range) -> list[Document]:
    if not batches:
        return []
    newest_first = (document for _version, document in documents_before(log.lake, log.version))
    above = takewhile(lambda document: document["batch"] >= batches.start, newest_first)
    return [document for document in above if document["batch"] < batches.stop][::-1]


def recorded_through(newest: BatchMeta | None) -> int:
    """Return the batch up to which `meta` rows have the metadata; -1 if there is none.

    In format 1 each batch wrote its own row, so that is the newest batch.
    """
    if newest is None:
        return -1
    return newest.batch if newest.format == 1 else newest.recorded


def overlapping(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Return the files in groups of overlapping batches, oldest first; different groups have no batches in common."""
    groups: list[list[DataFile]] = []
    for file in sorted(files, key=lambda file: file.min_batch):
        if groups and file.min_batch <= max(other.max_batch for other in groups[-1]):
            groups[-1].append(file)
        else:
            groups.append([file])
    return groups


def clocks(log: LogVersion) -> Iterator[tuple[int, int]]:
    """Yield (batch, clock in ms) of the batches, oldest first; read lazily."""
    recorded = recorded_through(log.newest())
    for group in overlapping(log.data_files("meta", META_PARTITION)):
        first, last = min(file.min_batch for file in group), max(file.max_batch for file in group)
        rows = log.read("meta", META_PARTITION, first - 1, ["batch", "timestamp"], up_to=min(last, recorded))
        yield from zip(rows.column("batch").to_pylist(), rows.column("timestamp").to_pylist(), strict=True)
    for document in _in_entries(log, range(recorded + 1, _stop(log))):
        yield document["batch"], document["clock"]


def _stop(log: LogVersion) -> int:
    newest = log.newest()
    return 0 if newest is None else newest.batch + 1


def base_of(log: LogVersion, batch: int) -> int:
    """Return the batch of the complete metadata that the batch's metadata builds upon.

    The metadata from there on has to be kept as long as that of the batch. If there is no metadata of the batch, use
    the newest batch.
    """
    found = documents(log, range(batch, min(batch + 1, _stop(log)))) or documents(
        log, range(_stop(log) - 1, _stop(log))
    )
    return int(found[0]["batch"] if is_complete(found[0]) else found[0]["base"])


def record(log: LogVersion, meta: BatchMeta, *, after_batch: int) -> list[DataFile]:
    """Write the `meta` rows of the batches above `after_batch` that have none yet; return their file, if any.

    `meta` is the metadata of the compaction; rows are written for the batches before it. The file is not part of the
    log until a commit names it.
    """
    recorded = recorded_through(log.newest())
    # rule: batch-history-rows/since
    found = _in_entries(log, range(max(recorded, after_batch) + 1, meta.batch))
    if not found:
        return []
    rows = pa.table(
        {
            "batch": pa.array([document["batch"] for document in found], pa.int64()),
            "seq": pa.array([0] * len(found), pa.int64()),
            "value": [json.dumps(document, separators=(",", ":")).encode() for document in found],
            "timestamp": pa.array([document["clock"] for document in found], pa.int64()),
        }
    )
    naming = Naming(log.format, meta.batch, meta.attempt, meta.clock)
    return [write_file(log.lake, naming, "meta", META_PARTITION, rows)]
