"""Find and delete orphans, which are data files that no commit has ever named.

They are left by attempts whose driver was killed and by tasks that outlived their attempt. Each sweep lists a bounded
number of files and checks whether a version that can still be read has them. Names begin with the batch, so a sweep of
the one folder of data files begins at a batch and attempt drawn at random: nothing has to remember where the last one
ended. In a partitioned log it lists one folder, drawn at random as well.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import StartOver
from tidegate.contracts.log_schema import is_partitioned
from tidegate.state.delta_log.attempt_files import NAME, delete_files, folders_of
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.state.delta_log.log_entries import (
    oldest_readable,
    oldest_version,
    read_entry,
    version_at,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import STAGING
from tidegate.state.protocol_decisions import Entry

# rule: orphans-after-a-week/age
MIN_AGE_MS = 7 * 24 * 3_600_000
"""Age at which an orphan may be deleted, ms: by the clock of the batch that it is named after."""

MAX_FILES = 1_000
"""Most files that one sweep checks."""

_STAGED = re.compile(rf"{STAGING}/[0-9a-f]{{16}}(-[0-9a-f]{{16}})?")

_BatchOf = Callable[[Entry], int | None]
"""A function that returns a batch number that an entry has; None for foreign entries."""


class Orphans(NamedTuple):
    """The number of data files that sweeps would delete, and their size in bytes."""

    files: int
    bytes: int


class _Candidate(NamedTuple):
    path: str
    batch: int
    attempt: str
    size: int


def sweep(log: LogVersion, *, oldest: int, clock_ms: int) -> int:
    """Delete the orphans found in one data folder; return their number. `oldest` is the log's oldest version.

    The folder and the files to check are drawn at random with the newest batch as seed, so that each has its turn in
    time. Old staging files of killed drivers are deleted as well, but not counted.
    """
    newest = log.newest()
    _clear_staging(log.lake, clock_ms)
    if newest is None:
        return 0
    draw = random.Random(newest.batch)
    first = _first_readable(log, oldest)
    aged, folder = _aged(log, oldest, first, clock_ms), draw.choice(_folders(log, newest))
    start = "" if is_partitioned(log.format) or aged < 0 else _start(draw, folder, aged)
    candidates = _candidates(log, folder, aged, start)
    drawn = draw.sample(candidates, min(len(candidates), MAX_FILES))
    found = _never_committed(log, first, drawn)
    delete_files(log.lake, [orphan.path for orphan in found])
    return len(found)


def _folders(log: LogVersion, newest: BatchMeta) -> list[str]:
    """Return the folders that have files: those of the partitions that the metadata or a file names."""
    named = {file.partition for file in log.data_files("state")} | newest.partitions.keys()
    return folders_of(log.format, sorted(named))


def _start(draw: random.Random, folder: str, newest_batch: int) -> str:
    """Return a key at which a sweep may begin: of any batch up to the newest that may have orphans, of any attempt."""
    return f"{folder}/{draw.randint(0, newest_batch):020d}-{draw.getrandbits(128):032x}"


def _clear_staging(log: Lake, clock_ms: int) -> None:
    """Delete staging files that killed drivers left in a folder; those of a running driver are younger than MIN_AGE_MS.

    They have no other age than that of the file, and none that is younger than a week is of use to anybody.
    """
    if log.place.is_local:
        staged = [found for found in log.list_after(STAGING) if _STAGED.fullmatch(found.key)]
        # rule: entry-being-written
        log.delete([found.key for found in staged if found.written_ms <= clock_ms - MIN_AGE_MS])


def orphans(log: LogVersion, *, clock_ms: int) -> Orphans:
    """Return what sweeps would delete in all folders. Nothing is changed, and a driver may run meanwhile."""
    if (newest := log.newest()) is None:
        return Orphans(0, 0)
    oldest = oldest_version(log.lake, log.version)
    first = _first_readable(log, oldest)
    aged = _aged(log, oldest, first, clock_ms)
    candidates = [candidate for folder in _folders(log, newest) for candidate in _candidates(log, folder, aged)]
    found = _never_committed(log, first, candidates)
    return Orphans(len(found), sum(orphan.size for orphan in found))


def _aged(log: LogVersion, oldest: int, first: int, clock_ms: int) -> int:
    """Return the newest batch whose files may be old enough to be deleted."""
    return _batch_at(log, max(first, version_at(log.lake, oldest, log.version, clock_ms - MIN_AGE_MS)), _batch)


def _candidates(log: LogVersion, folder: str, newest_batch: int, start: str = "") -> list[_Candidate]:
    """Return the folder's files that are named after batches up to `newest_batch` and are not in the table.

    With a `start`, at most MAX_FILES that are listed after it.
    """
    seen = log.lake.list_after(folder, start)
    listed = [
        (found, name)
        for found in (islice(seen, MAX_FILES) if start else seen)
        if (name := NAME.fullmatch(found.key[len(folder) + 1 :]))
    ]
    found = [_Candidate(each.key, int(name[1]), name[2], each.size) for each, name in listed]
    return sorted(one for one in found if one.batch <= newest_batch and not log.has_file(one.path))


def _first_readable(log: LogVersion, oldest: int) -> int:
    """Return the oldest version that can be read.

    Raise StartOver if there is none: a later driver has cleaned up, because the handle's driver was superseded.
    """
    first = oldest_readable(log.lake, oldest, log.version)
    if first is None:
        raise StartOver("another driver has removed the versions that this one knew", value=log.version)
    return first


def _never_committed(log: LogVersion, first: int, files: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the files that are not in the first readable version and were not written by a later commit."""
    if not files:
        return []
    there = load(log.lake, first).files
    return [
        file for file in files if file.path not in there and file.attempt not in _attempts_of(log, file.batch, first)
    ]


def _attempts_of(log: LogVersion, batch: int, first: int) -> set[str | None]:
    """Return the attempts, of commits above the version `first`, whose files may be named after the batch.

    These are the batch's own attempt and that of the first compaction from the batch on, which may have been planned as
    that batch and committed as a later one.
    """
    # rule: orphans-after-a-week/compacted
    return {_first_attempt(log, batch, first, batch_of) for batch_of in (_batch, _compacted)}


def _first_attempt(log: LogVersion, batch: int, first: int, batch_of: _BatchOf) -> str | None:
    """Return the attempt of the first entry above `first` whose `batch_of` is at least `batch`, if any."""
    version = bisect_left(range(log.version + 1), batch, lo=first + 1, key=lambda at: _batch_at(log, at, batch_of))
    entry = read_entry(log.lake, version)
    return entry.attempt if entry is not None else None


def _batch(entry: Entry) -> int | None:
    return entry.batch


def _compacted(entry: Entry) -> int | None:
    return entry.compacted


def _batch_at(log: LogVersion, version: int, batch_of: _BatchOf) -> int:
    """Return what `batch_of` gives for the newest Tidegate entry at or below the version; -1 if there is none."""
    while version >= 0 and (entry := read_entry(log.lake, version)) is not None:
        if (batch := batch_of(entry)) is not None:
            return batch
        version -= 1
    return -1
