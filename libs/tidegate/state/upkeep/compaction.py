"""Compaction and retention of an operator log.

A compaction is one commit with a batch number of its own. It replaces exactly the files that were read: state files by
the partition's live rows, small files of any kind by larger ones. It is marked as no change of data, so that a stream
that reads the log sees nothing of it. It can be worked out beside batches, since those only add files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, tee
from pathlib import Path

import pyarrow as pa

from tidegate.contracts.errors import Outdated
from tidegate.contracts.schema import META_PARTITION, PARTITION_COLUMNS, BatchMeta
from tidegate.state.decisions import newest_old
from tidegate.state.delta_log.data_files import (
    DataFile,
    delete_attempt,
    delete_files,
    read_files,
    write_file,
)
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.slots import last_rows, live_rows
from tidegate.state.upkeep.batch_history import clocks, kept_from, record
from tidegate.state.upkeep.cleanup import clean_up

SMALL_FILE_BYTES = 32 * 2**20
"""Files of output and metadata below this size are merged."""

LARGE_FILE_BYTES = 128 * 2**20
"""About the size, uncompressed, at which a rewritten file ends and another begins."""

FEW_ROWS = 100_000
"""A partition's state files with at most so many rows are rewritten as a snapshot without asking what it saves."""

TURN_BYTES = 2 * 2**30
"""Files of about so many bytes are rewritten by one compaction beside batches; the next one takes others."""

_OUTPUT = ("emission", "late", "rejected")


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A task's part of a compaction: files of one kind and partition, and what is kept of their rows.

    State files keep the last row of each `slot`, and if they are a `snapshot`, all of the partition's, no `delete`; the
    others lose the rows of batches up to `drop_through`.
    """

    log: Path
    schema: pa.Schema
    files: tuple[DataFile, ...]
    slot: tuple[str, ...]
    snapshot: bool
    drop_through: int
    batch: int
    attempt: str

    @property
    def kind(self) -> str:
        """The kind of all the files."""
        return self.files[0].kind

    @property
    def partition(self) -> int:
        """The partition of all the files."""
        return self.files[0].partition


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """What a task has written, and the files that it stands for; whether it is the partition's whole state."""

    files: tuple[DataFile, ...]
    replaces: tuple[DataFile, ...]
    snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A compaction that is worked out and not committed: what was rewritten, and new rows of metadata."""

    parts: tuple[Rewritten, ...]
    records: tuple[DataFile, ...] = ()

    @property
    def snapshots(self) -> list[int]:
        """The partitions whose state has become a snapshot."""
        return [part.replaces[0].partition for part in self.parts if part.snapshot]


Run = Callable[[Callable[[Rewrite], Rewritten], Sequence[Rewrite]], Iterable[Rewritten]]
"""Runs a function on each part: `map`, or a Spark job that does the same."""


def compact(
    log: OperatorLog,
    meta: BatchMeta,
    *,
    slot: Sequence[str],
    keep_output_ms: int | None,
    rewind_window_ms: int,
    published: Mapping[int, int] | None = None,
    run: Run = map,
    before_commit: Callable[[], None] = lambda: None,
) -> None:
    """The log holds the same state and output in few files, and nothing from behind the rewind window.

    `meta` is the commit's: action `compaction`, a batch and attempt of its own, `snapshot` naming it for every
    partition, all else as before. Output older than `keep_output_ms` (None: forever), by the clock of its batch, is
    dropped, but not that of a batch above the partition's mark in `published` (None: all of it is published).
    No attempt may run. Cleaning comes first: when it fails, there is no doubt about the commit. A rewriting that fails
    leaves no file.
    """
    clean_up(log, clock_ms=meta.clock, rewind_window_ms=rewind_window_ms)
    prepared = prepare(log, meta, slot=slot, keep_output_ms=keep_output_ms, published=published, run=run)
    before_commit()
    commit(log, meta, prepared)


def prepare(
    log: OperatorLog,
    meta: BatchMeta,
    *,
    slot: Sequence[str],
    keep_output_ms: int | None,
    published: Mapping[int, int] | None,
    held: Mapping[int, int] | None = None,
    run: Run = map,
) -> Prepared:
    """Work a compaction out, for a commit with `meta` or with later metadata of the same attempt; see `plan`.

    If it fails it leaves no file.
    """
    try:
        expired = _newest_expired(log, meta.clock, keep_output_ms)
        records = record(log, meta, after_batch=_drop_through("meta", META_PARTITION, expired, None, log))
        parts = plan(log, meta, slot=slot, expired=expired, published=published, held=held)
        return Prepared(parts=tuple(run(rewrite, parts)), records=tuple(records))
    except Exception:
        delete_attempt(log.path, meta.batch, meta.attempt)
        raise


def commit(log: OperatorLog, meta: BatchMeta, prepared: Prepared) -> None:
    """What was rewritten stands in the place of what it replaces. Outdated if that is gone; no file is left then."""
    files = [file for part in prepared.parts for file in part.files]
    replaces = [file for part in prepared.parts for file in part.replaces]
    try:
        log.commit(meta, files, replaces, prepared.records)
    except Outdated:
        delete_files(log.path, meta.batch, meta.attempt, [*files, *prepared.records])
        raise


def plan(
    log: OperatorLog,
    meta: BatchMeta,
    *,
    slot: Sequence[str],
    expired: int = -1,
    published: Mapping[int, int] | None,
    held: Mapping[int, int] | None = None,
) -> list[Rewrite]:
    """The parts of a compaction that are worth their work; `expired`: the newest batch whose output may go.

    With `held`, the live rows of each partition, a large state is only rewritten where half of its rows are dead: so a
    change costs as much however much is held. Without, every state becomes a snapshot.
    """
    parts = []
    for kind in ("state", *_OUTPUT, "meta"):
        for partition, files in groupby(log.data_files(kind), key=lambda file: file.partition):
            present, drop_through = list(files), _drop_through(kind, partition, expired, published, log)
            snapshot = kind == "state" and (held is None or _mostly_dead(present, held.get(partition, 0)))
            if worth := _worth_rewriting(present, snapshot, drop_through):
                parts.append(
                    Rewrite(
                        log=log.path,
                        schema=log.schema,
                        files=worth,
                        slot=tuple(slot),
                        snapshot=snapshot,
                        drop_through=drop_through,
                        batch=meta.batch,
                        attempt=meta.attempt,
                    )
                )
    return parts if held is None else _of_a_turn(parts, meta.batch)


def _of_a_turn(parts: list[Rewrite], batch: int) -> list[Rewrite]:
    """Return as many of the parts as a turn may take, one at least; drawn by the batch, so that each has its turn."""
    sizes = [sum(file.size for file in part.files) for part in parts]
    if sum(sizes) <= TURN_BYTES:
        return parts
    drawn = random.Random(batch).sample(range(len(parts)), len(parts))
    reached = accumulate(sizes[part] for part in drawn)
    taken = drawn[: max(1, sum(size <= TURN_BYTES for size in reached))]
    return [parts[part] for part in sorted(taken)]


def _newest_expired(log: OperatorLog, clock: int, keep_output_ms: int | None) -> int:
    """Return the newest batch that is more than `keep_output_ms` old by the clocks of the batches; -1: none."""
    if keep_output_ms is None:
        return -1
    batches, times = tee(clocks(log))
    place = newest_old((time for _batch, time in times), clock, keep_output_ms)
    return -1 if place < 0 else next(islice(batches, place, None))[0]


def _drop_through(
    kind: str, partition: int, expired: int, published: Mapping[int, int] | None, log: OperatorLog
) -> int:
    """State is kept by its slots; output up to the mark may go; metadata goes with the output of its batch.

    Unless metadata that is kept builds upon it.
    """
    if kind == "state" or expired < 0:
        return -1
    if kind == "meta":
        return min(expired, kept_from(log, expired + 1) - 1)
    return expired if published is None else min(expired, published.get(partition, -1))


def _mostly_dead(files: list[DataFile], held: int) -> bool:
    rows = sum(file.rows for file in files)
    return rows <= FEW_ROWS or rows >= 2 * held


def _worth_rewriting(files: list[DataFile], snapshot: bool, drop_through: int) -> tuple[DataFile, ...]:
    """All files for a snapshot, if they are several; else the expired ones, and small ones that are worth merging."""
    if snapshot:
        return tuple(files) if len(files) > 1 else ()
    expired = [file for file in files if file.max_batch <= drop_through]
    small = [file for file in files if file.max_batch > drop_through and file.size < SMALL_FILE_BYTES]
    return tuple(expired + _mergeable(small))


def _mergeable(small: list[DataFile]) -> list[DataFile]:
    """The smallest ones, up to the first that outweighs all of them: so a row is merged once for each doubling."""
    taken: list[DataFile] = []
    for file in sorted(small, key=lambda file: file.size):
        if len(taken) > 1 and file.size > sum(one.size for one in taken):
            break
        taken.append(file)
    return taken if len(taken) > 1 else []


def rewrite(part: Rewrite) -> Rewritten:
    """The kept rows are in new files, with the batch and seq that they had; nothing is committed."""
    needed = [file for file in part.files if file.max_batch > part.drop_through]
    rows = read_files(part.log, needed, part.schema, after_batch=part.drop_through).drop_columns(PARTITION_COLUMNS)
    written = [
        write_file(part.log, part.kind, part.partition, _without_empty(piece), batch=part.batch, attempt=part.attempt)
        for piece in _pieces(_kept(part, rows))
    ]
    return Rewritten(files=tuple(written), replaces=part.files, snapshot=part.snapshot)


def _kept(part: Rewrite, rows: pa.Table) -> pa.Table:
    if part.snapshot:
        return live_rows(rows, part.slot)
    return last_rows(rows, part.slot) if part.kind == "state" else rows


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows cut into tables of about LARGE_FILE_BYTES; none for no rows."""
    pieces = 1 + rows.nbytes // LARGE_FILE_BYTES
    length = -(-rows.num_rows // pieces)
    for start in range(0, rows.num_rows, max(length, 1)):
        yield rows.slice(start, length)


def _without_empty(rows: pa.Table) -> pa.Table:
    """The rows without the columns that are null throughout: absent columns read as null."""
    return rows.select([name for name in rows.column_names if rows.column(name).null_count < rows.num_rows])
