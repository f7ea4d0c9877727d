"""Compact an operator log and drop output that is older than its retention.

A compaction is one commit with its own batch number. It replaces exactly the files that were read: the state files of a
partition by its live rows, small files of any kind by larger ones. It is marked as no change of data, so that a stream
that reads the log does not see it. It can be prepared while batches run, since batches only add files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, islice, tee
from typing import TypeVar

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import Outdated
from tidegate.contracts.log_schema import META_PARTITION, PART_COLUMNS
from tidegate.contracts.operator import Slot
from tidegate.state.delta_log.attempt_files import Naming, delete_attempt, delete_files, without_empty, write_file
from tidegate.state.delta_log.data_files import (
    DataFile,
    read_files,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import newest_old
from tidegate.state.slots import last_rows, live_rows
from tidegate.state.upkeep.batch_history import base_of, clocks, record
from tidegate.state.upkeep.cleanup import clean_up

Item = TypeVar("Item", str, int)

SMALL_FILE_BYTES = 32 * 2**20
"""Files of output and metadata below this size are merged."""

LARGE_FILE_BYTES = 128 * 2**20
"""Approximate uncompressed size at which a rewritten file is split."""

FEW_ROWS = 100_000
"""A partition's state files with at most this many rows are rewritten as a snapshot, whatever that saves."""

MAX_BACKGROUND_BYTES = 2 * 2**30
"""Approximate size of the files that one compaction beside batches rewrites; the next one takes other files."""

_OUTPUT = ("emission", "late", "rejected")


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A task's part of a compaction: files of one kind and partition, and which of their rows are kept.

    Of state files, the last row of each `slot` is kept. With `snapshot`, the files are all state files of the
    partition, and deletes are dropped as well. Of other files, the rows of batches up to `drop_through` are dropped.
    """

    log: Lake
    schema: pa.Schema
    files: tuple[DataFile, ...]
    slot: Slot
    snapshot: bool
    drop_through: int
    naming: Naming

    @property
    def kind(self) -> str:
        """Return the kind, which all the files share."""
        return self.files[0].kind

    @property
    def partition(self) -> int:
        """Return the partition, which all the files share."""
        return self.files[0].partition


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """The files that a task has written and those that they replace; with `snapshot`, a partition's whole state."""

    files: tuple[DataFile, ...]
    replaces: tuple[DataFile, ...]
    snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A compaction that is not committed yet: the rewritten parts, and files with new `meta` rows."""

    parts: tuple[Rewritten, ...]
    records: tuple[DataFile, ...] = ()

    @property
    def rewritten(self) -> list[DataFile]:
        """Return the files that replace others."""
        return [file for part in self.parts for file in part.files]

    @property
    def snapshots(self) -> list[int]:
        """Return the partitions whose state was rewritten as a snapshot."""
        return [part.replaces[0].partition for part in self.parts if part.snapshot]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a compaction keeps.

    Of state, the last row of each `slot`. Output of the last `output_ms` by the clocks of its batches (None: forever),
    and that of batches above the partition's mark in `published` (None: all of it is published).
    """

    slot: Slot
    output_ms: int | None = None
    published: Mapping[int, int] | None = None


Run = Callable[[Callable[[Rewrite], Rewritten], Sequence[Rewrite]], Iterable[Rewritten]]
"""A function that applies another one to each part: `map`, or a Spark job that does the same."""


def compact(
    log: OperatorLog,
    meta: BatchMeta,
    kept: Kept,
    *,
    rewind_window_ms: int,
    run: Run = map,
    before_commit: Callable[[], None] = lambda: None,
) -> None:
    """Clean up the log, rewrite all of its state and small files into fewer files, and commit the result.

    `meta` is the metadata of the commit: it has the action `compaction`, its own batch and attempt, and `snapshot` set
    to that batch for every partition; all else is as before.

    No attempt may run meanwhile. Clean-up comes first, so that its failure leaves no doubt about the commit. A rewrite
    that fails leaves no files.
    """
    clean_up(log, clock_ms=meta.clock, rewind_window_ms=rewind_window_ms)
    prepared = prepare(log, meta, kept, run=run)
    before_commit()
    commit(log, meta, prepared)


def prepare(
    log: LogVersion,
    meta: BatchMeta,
    kept: Kept,
    *,
    held: Mapping[int, int] | None = None,
    run: Run = map,
) -> Prepared:
    """Write the files of a compaction without committing them; see `plan` for what is rewritten.

    They may be committed with `meta` or with later metadata of the same attempt. A failure leaves no files.
    """
    parts: list[Rewrite] = []
    try:
        expired = _newest_expired(log, meta.clock, kept.output_ms)
        records = record(log, meta, after_batch=_drop_through("meta", META_PARTITION, expired, None, log))
        parts = plan(log, meta, kept, expired=expired, held=held)
        return Prepared(parts=tuple(run(rewrite, parts)), records=tuple(records))
    except Exception:
        partitions = {part.partition for part in parts}
        delete_attempt(log.lake, log.format, meta.batch, meta.attempt, partitions)
        raise


def commit(log: OperatorLog, meta: BatchMeta, prepared: Prepared) -> None:
    """Commit a prepared compaction. Raise Outdated, and delete its files, if a file that it replaces is gone."""
    files = prepared.rewritten
    replaces = [file for part in prepared.parts for file in part.replaces]
    try:
        # rule: compaction-replaces-read/entry, batch-history-rows/entry
        log.commit(meta, files, replaces, prepared.records)
    except Outdated:
        # rule: compaction-not-outdated
        discard(log, prepared)
        raise


def discard(log: LogVersion, prepared: Prepared) -> None:
    """Delete the files of a compaction that is not committed."""
    delete_files(log.lake, [file.path for file in (*prepared.rewritten, *prepared.records)])


def plan(
    log: LogVersion,
    meta: BatchMeta,
    kept: Kept,
    *,
    expired: int = -1,
    held: Mapping[int, int] | None = None,
) -> list[Rewrite]:
    """Return the parts of a compaction that are worth rewriting.

    `expired` is the newest batch whose output may be dropped (-1: none). `held` is the number of live rows of each
    partition. With it, a large state becomes a snapshot only if at least half of its rows are dead, so that the cost
    per change does not depend on the size of the state; and the parts are limited to about
    MAX_BACKGROUND_BYTES. Without it, every state that has several files becomes a snapshot.
    """
    groups = []
    for kind in ("state", *_OUTPUT, "meta"):
        for partition, files in groupby(log.data_files(kind), key=lambda file: file.partition):
            drop_through = _drop_through(kind, partition, expired, kept.published, log)
            groups.append(_Group.of(log, list(files), drop_through, held))
    whole = {file.path: file.size for group in groups for file in group.mixed}
    # rule: compaction-bounded/part, mixed-files-split
    split = whole.keys() if held is None else _of_a_turn(whole, meta.batch)
    worth = {place: group.worth_rewriting(split) for place, group in enumerate(groups)}
    sizes = {place: sum(file.size for file in files) for place, (files, _) in worth.items() if files}
    # rule: compaction-bounded/own
    chosen = sizes.keys() if held is None else _of_a_turn(sizes, meta.batch)
    planned = [worth[at] if at in chosen else (group.of_mixed(split), False) for at, group in enumerate(groups)]
    return [
        Rewrite(
            log=log.lake,
            schema=log.schema,
            files=files,
            slot=kept.slot,
            snapshot=snapshot,
            drop_through=group.drop_through,
            naming=Naming(log.format, meta.batch, meta.attempt, meta.clock),
        )
        for group, (files, snapshot) in zip(groups, planned, strict=True)
        if files
    ]


@dataclass(frozen=True)
class _Group:
    """All files of one kind and partition: `mixed` ones, which have rows of others too, and those of its `own`.

    `shares`: about how many bytes of each mixed file are its rows. `may_be_snapshot`: the state is worth a snapshot.
    """

    own: list[DataFile]
    mixed: list[DataFile]
    shares: dict[str, int]
    drop_through: int
    may_be_snapshot: bool

    @classmethod
    def of(cls, log: LogVersion, files: list[DataFile], drop_through: int, held: Mapping[int, int] | None) -> _Group:
        """Return the group of these files, which are all of their kind and partition."""
        mixed = [file for file in files if log.whole(file).is_mixed]
        shares = {file.path: file.size * file.rows // max(log.whole(file).rows, 1) for file in mixed}
        own = [file for file in files if not log.whole(file).is_mixed]
        live = 0 if held is None else held.get(files[0].partition, 0)
        may = files[0].kind == "state" and (held is None or _mostly_dead(files, live))
        return cls(own, mixed, shares, drop_through, may)

    def of_mixed(self, split: Collection[str]) -> tuple[DataFile, ...]:
        """Return the parts of these mixed files, which have to be rewritten with all other parts of the files."""
        return tuple(file for file in self.mixed if file.path in split)

    def worth_rewriting(self, split: Collection[str]) -> tuple[tuple[DataFile, ...], bool]:
        """Return the files to rewrite if these mixed files are split, and whether they become a snapshot."""
        needed = self.of_mixed(split)
        if self.may_be_snapshot and len(needed) == len(self.mixed):
            several = bool(needed) or len(self.own) > 1
            return ((*needed, *self.own), True) if several else ((), False)
        expired = [file for file in self.own if file.max_batch <= self.drop_through]
        small = [file for file in self.own if file.max_batch > self.drop_through and file.size < SMALL_FILE_BYTES]
        sizes = {file.path: self.shares.get(file.path, file.size) for file in (*small, *needed)}
        mergeable = _mergeable(sizes)
        merged = [file for file in small if file.path in mergeable]
        return (*needed, *expired, *merged), False


def _of_a_turn(sizes: Mapping[Item, int], batch: int) -> set[Item]:
    """Return items of up to MAX_BACKGROUND_BYTES in all, but at least one if there are any.

    They are drawn at random with the batch as seed, so that each has its turn in time.
    """
    if sum(sizes.values()) <= MAX_BACKGROUND_BYTES:
        return set(sizes)
    # rule: compaction-bounded/random
    drawn = random.Random(batch).sample(list(sizes), len(sizes))
    reached = accumulate(sizes[item] for item in drawn)
    return set(drawn[: max(1, sum(size <= MAX_BACKGROUND_BYTES for size in reached))])


def _newest_expired(log: LogVersion, clock: int, keep_output_ms: int | None) -> int:
    """Return the newest batch that is more than `keep_output_ms` old by the clocks of batches; -1 if there is none."""
    if keep_output_ms is None:
        return -1
    batches, times = tee(clocks(log))
    place = newest_old((time for _batch, time in times), clock, keep_output_ms)
    return -1 if place < 0 else next(islice(batches, place, None))[0]


def _drop_through(kind: str, partition: int, expired: int, published: Mapping[int, int] | None, log: LogVersion) -> int:
    """Return the newest batch whose rows of the kind may be dropped in the partition; -1 if there is none.

    State rows are never dropped by their batch. Output is dropped up to the mark at most. Metadata is dropped together
    with the output of its batch, unless metadata that is kept builds upon it.
    """
    if kind == "state" or expired < 0:
        return -1
    if kind == "meta":
        # rule: history-with-base
        return min(expired, base_of(log, expired + 1) - 1)
    # all output of a partition that a rescale has taken away was published before
    # rule: unpublished-kept
    return expired if published is None else min(expired, published.get(partition, expired))


def _mostly_dead(files: list[DataFile], held: int) -> bool:
    rows = sum(file.rows for file in files)
    return rows <= FEW_ROWS or rows >= 2 * held


def _mergeable(sizes: Mapping[str, int]) -> set[str]:
    """Return the smallest files, without the first that is larger than all smaller ones together and those after it.

    So a row is merged once for each doubling of its file. A single file is not merged. `sizes`: by path.
    """
    taken, total = set[str](), 0
    for path in sorted(sizes, key=lambda path: sizes[path]):
        if len(taken) > 1 and sizes[path] > total:
            break
        taken.add(path)
        total += sizes[path]
    return taken if len(taken) > 1 else set()


def rewrite(part: Rewrite) -> Rewritten:
    """Write the rows that are kept, with their `batch` and `seq`, to new files; commit nothing."""
    needed = [file for file in part.files if file.max_batch > part.drop_through]
    rows = read_files(part.log, needed, part.schema, after_batch=part.drop_through)
    kept = _kept(part, rows.drop_columns(PART_COLUMNS))
    written = [
        write_file(part.log, part.naming, part.kind, part.partition, without_empty(piece), number=number)
        for number, piece in enumerate(_pieces(kept), 1)  # a file of new `meta` rows has the number 0
    ]
    # rule: compaction-replaces-read/files
    return Rewritten(files=tuple(written), replaces=part.files, snapshot=part.snapshot)


def _kept(part: Rewrite, rows: pa.Table) -> pa.Table:
    if part.snapshot:
        # rule: snapshot-live-rows
        return live_rows(rows, part.slot)
    return last_rows(rows, part.slot) if part.kind == "state" else rows


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in tables of about LARGE_FILE_BYTES; no table if there are no rows."""
    pieces = 1 + rows.nbytes // LARGE_FILE_BYTES
    length = -(-rows.num_rows // pieces)
    for start in range(0, rows.num_rows, max(length, 1)):
        yield rows.slice(start, length)
