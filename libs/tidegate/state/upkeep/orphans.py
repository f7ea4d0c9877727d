"""Data files that no commit ever named: of attempts whose driver was killed, and of tasks that outlived their attempt.

A sweep lists one folder, the next one another, and asks of a bounded number of files whether a version that can still
be read has them.
"""

from __future__ import annotations

import os
import random
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegate.state.decisions import Entry
from tidegate.state.delta_log.log_entries import (
    STAGING,
    checkpoint_path,
    oldest_version,
    read_entry,
    version_at,
    written_ms,
)
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.delta_log.snapshot import load

MIN_AGE_MS = 7 * 24 * 3_600_000
"""A file of no commit stays this long."""

MAX_FILES = 1_024
"""Files that one sweep asks about at the most."""

_NAME = re.compile(r"(\d+)-([0-9a-zA-Z]+)-\d+\.parquet")


_Tell = Callable[[Entry], int | None]
"""What is asked of an entry; None for entries of others."""


class Orphans(NamedTuple):
    """Data files that a sweep would take, and their bytes."""

    files: int
    bytes: int


class _Candidate(NamedTuple):
    path: str
    batch: int
    attempt: str


def sweep(log: OperatorLog, *, oldest: int, clock_ms: int) -> int:
    """The orphans that were found in one data folder are gone; gives their number. `oldest`: the log's oldest version.

    The folder and the files asked about are drawn by the newest batch, so that every one has its turn.
    """
    newest = log.newest()
    folders = sorted(log.path.glob("kind=*/partition=*"))
    _clear_staging(log.path, clock_ms)
    if newest is None or not folders:
        return 0
    draw = random.Random(newest.batch)
    first = _first_readable(log, oldest)
    candidates = _candidates(log, draw.choice(folders), _aged(log, oldest, first, clock_ms))
    drawn = draw.sample(candidates, min(len(candidates), MAX_FILES))
    found = _unnamed(log, first, _old(log, drawn, clock_ms))
    for orphan in found:
        (log.path / orphan.path).unlink(missing_ok=True)
    return len(found)


def _clear_staging(log: Path, clock_ms: int) -> None:
    """Delete what killed drivers were about to put into the log; a driver at work has younger files there."""
    for path in (log / STAGING).glob("*"):
        written = _written_ms(path)
        if written is not None and written <= clock_ms - MIN_AGE_MS:
            path.unlink(missing_ok=True)


def orphans(log: OperatorLog, *, clock_ms: int) -> Orphans:
    """What sweeps would take from all folders; nothing is changed, and a driver may run meanwhile."""
    if log.newest() is None:
        return Orphans(0, 0)
    oldest = oldest_version(log.path, log.version)
    first = _first_readable(log, oldest)
    aged = _aged(log, oldest, first, clock_ms)
    folders = sorted(log.path.glob("kind=*/partition=*"))
    candidates = [candidate for folder in folders for candidate in _candidates(log, folder, aged)]
    found = _unnamed(log, first, _old(log, candidates, clock_ms))
    return Orphans(len(found), sum(_size(log.path / orphan.path) for orphan in found))


def _aged(log: OperatorLog, oldest: int, first: int, clock_ms: int) -> int:
    """The newest batch whose files may be old enough."""
    return _told(log, max(first, version_at(log.path, oldest, log.version, clock_ms - MIN_AGE_MS)), _batch)


def _old(log: OperatorLog, candidates: Sequence[_Candidate], clock_ms: int) -> list[_Candidate]:
    """Those that have been there long enough, and still are."""
    ages = ((candidate, _written_ms(log.path / candidate.path)) for candidate in candidates)
    return [candidate for candidate, written in ages if written is not None and written <= clock_ms - MIN_AGE_MS]


def _written_ms(path: Path) -> int | None:
    try:
        return written_ms(path)
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _candidates(log: OperatorLog, folder: Path, newest_batch: int) -> list[_Candidate]:
    """The folder's files of batches up to `newest_batch` that the table does not have."""
    within = folder.relative_to(log.path)
    with os.scandir(folder) as entries:
        names = [name for entry in entries if (name := _NAME.fullmatch(entry.name))]
    found = [_Candidate(f"{within}/{name[0]}", int(name[1]), name[2]) for name in names]
    return sorted(one for one in found if one.batch <= newest_batch and not log.has_file(one.path))


def _first_readable(log: OperatorLog, oldest: int) -> int:
    """The oldest version that can be read: what lies between a half-done clean-up and its checkpoint cannot."""
    if oldest == 0:
        return 0
    return next(at for at in range(oldest, log.version + 1) if checkpoint_path(log.path, at).exists())


def _unnamed(log: OperatorLog, first: int, files: Sequence[_Candidate]) -> list[_Candidate]:
    """Those of the files that the first readable version does not have and that no later commit wrote."""
    if not files:
        return []
    there = load(log.path, first).files
    return [
        file for file in files if file.path not in there and file.attempt not in _attempts_of(log, file.batch, first)
    ]


def _attempts_of(log: OperatorLog, batch: int, first: int) -> set[str | None]:
    """Whose files may be named after the batch, of the commits above the version `first`: the batch's own attempt, and
    the first compaction from there on, which may have been planned as that batch and committed as a later one.
    """
    return {_first_attempt(log, batch, first, tell) for tell in (_batch, _compacted)}


def _first_attempt(log: OperatorLog, batch: int, first: int, tell: _Tell) -> str | None:
    """The attempt of the first commit above `first` that tells the batch or a later one; None: there is none."""
    version = bisect_left(range(log.version + 1), batch, lo=first + 1, key=lambda at: _told(log, at, tell))
    entry = read_entry(log.path, version)
    return entry.attempt if entry is not None else None


def _batch(entry: Entry) -> int | None:
    return entry.batch


def _compacted(entry: Entry) -> int | None:
    return entry.compacted


def _told(log: OperatorLog, version: int, tell: _Tell) -> int:
    """What the newest of Tidegate's own entries up to the version tells; -1: there is none."""
    while version >= 0 and (entry := read_entry(log.path, version)) is not None:
        if (told := tell(entry)) is not None:
            return told
        version -= 1
    return -1
