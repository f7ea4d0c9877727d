"""Compaction and retention of an operator log. May import: the standard library, pyarrow, contracts, state.

A compaction is one commit with a batch number of its own. It replaces exactly the files that were read: state files by
the partition's live rows, small files of any kind by larger ones. It is marked as no change of data, so that a stream
that reads the log sees nothing of it. It can be worked out beside batches, since those only add files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from tidegate.contracts.errors import Outdated
from tidegate.contracts.schema import META_PARTITION, PARTITION_COLUMNS, BatchMeta
from tidegate.state.cleanup import clean_up
from tidegate.state.data_files import DataFile, delete_attempt, delete_files, read_files, write_file
from tidegate.state.decisions import newest_old
from tidegate.state.operator_log import OperatorLog
from tidegate.state.slots import last_rows, live_rows

SMALL_FILE_BYTES = 32 * 2**20
"""Files of output and metadata below this size are merged."""

LARGE_FILE_BYTES = 128 * 2**20
"""About the size, uncompressed, at which a rewritten file ends and another begins."""

FEW_ROWS = 100_000
"""A partition's state files with at most so many rows are rewritten as a snapshot without asking what it saves."""

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
    """What a task has written, and the files that it stands for."""

    files: tuple[DataFile, ...]
    replaces: tuple[DataFile, ...]


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
    parts = plan(log, meta, slot=slot, keep_output_ms=keep_output_ms, published=published)
    try:
        done = list(run(rewrite, parts))
    except Exception:
        delete_attempt(log.path, meta.batch, meta.attempt)
        raise
    before_commit()
    commit(log, meta, done)


def commit(log: OperatorLog, meta: BatchMeta, done: Sequence[Rewritten]) -> None:
    """What was rewritten stands in the place of what it replaces. Outdated if that is gone; no file is left then."""
    files = [file for part in done for file in part.files]
    try:
        log.commit(meta, files, [file for part in done for file in part.replaces])
    except Outdated:
        delete_files(log.path, meta.batch, meta.attempt, files)
        raise


def plan(
    log: OperatorLog,
    meta: BatchMeta,
    *,
    slot: Sequence[str],
    keep_output_ms: int | None,
    published: Mapping[int, int] | None,
    held: Mapping[int, int] | None = None,
) -> list[Rewrite]:
    """The parts of a compaction that are worth their work.

    With `held`, the live rows of each partition, a large state is only rewritten where half of its rows are dead: so a
    change costs as much however much is held. Without, every state becomes a snapshot.
    """
    expired = _newest_expired(log, meta.clock, keep_output_ms)
    parts = []
    for kind in ("state", *_OUTPUT, "meta"):
        for partition, files in groupby(log.data_files(kind), key=lambda file: file.partition):
            present, drop_through = list(files), _drop_through(kind, partition, expired, published)
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
    return parts


def _newest_expired(log: OperatorLog, clock: int, keep_output_ms: int | None) -> int:
    """Return the newest batch that is more than `keep_output_ms` old by the clocks of the batches; -1: none."""
    if keep_output_ms is None:
        return -1
    rows = log.read("meta", META_PARTITION, columns=["batch", "timestamp"])
    place = newest_old(rows.column("timestamp").to_pylist(), clock, keep_output_ms)
    return -1 if place < 0 else int(rows.column("batch")[place].as_py())


def _drop_through(kind: str, partition: int, expired: int, published: Mapping[int, int] | None) -> int:
    """State is kept by its slots; output up to the mark may go; metadata goes with the output of its batch."""
    if kind == "state":
        return -1
    if kind == "meta" or published is None:
        return expired
    return min(expired, published.get(partition, -1))


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
    return Rewritten(files=tuple(written), replaces=part.files)


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
