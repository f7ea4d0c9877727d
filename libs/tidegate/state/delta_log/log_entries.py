"""Write, find and read the entries of a Delta log.

An entry is written once. The folder is listed only if no checkpoint shows where to look. With a checkpoint, the cost
does not grow with the number of entries.
"""

from __future__ import annotations

import errno
import json
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from tidegate.contracts.batch_metadata import Document
from tidegate.contracts.errors import StateError, Unavailable, UserError
from tidegate.contracts.naming import COMMIT_METADATA_KEY
from tidegate.state import disk
from tidegate.state.protocol_decisions import Entry

DELTA_LOG = "_delta_log"
STAGING = "_tidegate"
"""Folder of files while they are written; Delta ignores it, as it does all names that begin with an underscore."""

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
LOOK_AHEAD = 64
"""Number of versions checked above a missing entry: if one of them exists, the missing entry is lost."""

_CHANGES_TABLE = ("metaData", "protocol")
_NAMES_A_FILE = ("add", "remove")
_WITHIN_THE_TABLE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_=.-]*(/[a-zA-Z0-9][a-zA-Z0-9_=.-]*)*")
"""The paths that are accepted: plain names with `/` between them, so that nothing has to be decoded or resolved."""


def entry_path(log: Path, version: int) -> Path:
    """Return the path of a version's entry."""
    return log / DELTA_LOG / f"{version:020d}.json"


def checkpoint_path(log: Path, version: int) -> Path:
    """Return the path of a version's checkpoint."""
    return log / DELTA_LOG / f"{version:020d}.checkpoint.parquet"


def check_log_exists(log: Path) -> None:
    """Raise Unavailable if the log's folder is missing, as when its lake is not mounted.

    A write would create a new, empty log in its place.
    """
    with disk.disk_errors(log):
        there = (log / DELTA_LOG).is_dir()
    if not there:
        raise Unavailable("the lake is unavailable", value=log, remedy="mount it again, or restore the folder")


def put_entry(log: Path, version: int, actions: Sequence[dict[str, Any]]) -> bool:
    """Write the entry of the version, if there is none, as a whole; return False if the version is taken.

    Nothing is written if the version is taken, whoever took it. Raise UserError if the file system has no hard links.
    After an OSError the outcome is unknown. The content is synced to disk before the entry becomes visible; the name is
    durable only once the caller has synced the folder. For an object store, only this function would have to differ.
    """
    with disk.staged(
        log / STAGING, b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in actions)
    ) as file:
        try:
            # rule: entry-never-replaced
            os.link(file, entry_path(log, version))
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise UserError(
                    "the file system of the lake has no hard links, which make a commit atomic",
                    value=f"{log}: {error.strerror}",
                    remedy="name a folder of a disk or of NFS as `lake`, not a mounted object store",
                ) from error
            raise
    return True


def newest_version(log: Path) -> int | None:
    """Return the newest version that has an entry; None if there is no log.

    Search upwards from the newest log checkpoint; list the folder only if there is no checkpoint. Raise StateError if a
    file of a newer version exists above a missing entry: that entry is lost.
    """
    known = _checkpointed(log)
    # rule: bounded-by-log-length/version
    if known is None or not entry_path(log, known).exists():
        return _newest_listed(log)
    while True:
        newest = next(version for version in count(known) if not entry_path(log, version + 1).exists())
        ahead = range(newest + 2, newest + 2 + LOOK_AHEAD)
        beyond = next((version for version in ahead if entry_path(log, version).exists()), None)
        # rule: lost-entry-stops
        if beyond is None:
            return newest
        if not entry_path(log, newest + 1).exists():  # else a driver has written both entries meanwhile
            raise _entries_lost(entry_path(log, beyond))
        known = newest + 1


def _checkpointed(log: Path) -> int | None:
    """Return the version that Delta's `_last_checkpoint` names; None if that file is missing or cannot be read."""
    try:
        return int(json.loads((log / DELTA_LOG / "_last_checkpoint").read_bytes())["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _newest_listed(log: Path) -> int | None:
    try:
        with os.scandir(log / DELTA_LOG) as files:
            names = [file.name for file in files if file.name[:20].isdecimal()]
    except FileNotFoundError:
        return None
    newest = max((name for name in names if name[20:] == ".json"), default=None)
    if newest is None:
        return None
    # rule: expected-version
    if max(names)[:20] > newest[:20]:
        raise _entries_lost(log / DELTA_LOG / max(names))
    return int(newest[:20])


def _entries_lost(newer: Path) -> StateError:
    return StateError(
        "the log's newest version is not the one that its entries show",
        value=newer,
        remedy="bring the log's entries back from a copy",
    )


def oldest_version(log: Path, newest: int) -> int:
    """Return the oldest version that has an entry.

    Clean-up deletes the oldest entries first and so leaves no gap; that allows a binary search.
    """
    return bisect_left(range(newest), True, key=lambda version: entry_path(log, version).exists())


def version_at(log: Path, oldest: int, newest: int, time_ms: int) -> int:
    """Return the newest version at that time, by the file times of entries; `oldest` - 1 if all are later."""
    return (
        bisect_right(range(newest + 1), time_ms, lo=oldest, key=lambda version: written_ms(entry_path(log, version)))
        - 1
    )


def written_ms(path: Path) -> int:
    """Return the file's modification time, ms."""
    return path.stat().st_mtime_ns // 1_000_000


def fingerprint_of(log: Path, version: int) -> tuple[int, int] | None:
    """Return the entry's file time (ns) and size; None if there is no entry.

    They differ if another entry was put in its place.
    """
    try:
        found = entry_path(log, version).stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def read_actions(log: Path, version: int) -> list[dict[str, Any]] | None:
    """Return the entry's actions; None if there is no entry.

    Raise StateError, naming the entry, if it is empty or cut short, or names a file that is not the table's.
    """
    path = entry_path(log, version)
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines()]
    except FileNotFoundError:
        return None
    except ValueError:
        actions = []
    # rule: damaged-entry-stops
    if not actions:
        raise StateError(
            "an entry of the operator log is empty or truncated, as after a power failure",
            value=path,
            remedy="if it is the newest entry, move it away and start again: its batch is then done again",
        )
    # rule: path-inside-table
    refuse_paths_outside(path, actions)
    return actions


def refuse_paths_outside(file: Path, actions: Iterable[dict[str, Any]]) -> None:
    """Raise StateError if an action names a data file outside of the table, or a file of `_delta_log`.

    `file` is the entry or checkpoint that the actions are from. The check is needed because files that a log names are
    read, and deleted by a clean-up, while an entry can come from anybody who may write to the lake.
    """
    paths = (action[name]["path"] for action in actions for name in _NAMES_A_FILE if name in action)
    strange = [path for path in paths if not _WITHIN_THE_TABLE.fullmatch(path)]
    if strange:
        raise StateError(
            "a path in the operator log leaves the table",
            value=f"{strange[0]!r} in {file}",
            remedy="find out who wrote it; stop the operator, move that entry and all newer ones out of _delta_log, "
            "and start again",
        )


def document_of(actions: Sequence[dict[str, Any]]) -> Document | None:
    """Return the batch metadata in an entry's actions; None for a foreign entry, and for the table's creation."""
    said = next((action["commitInfo"].get(COMMIT_METADATA_KEY) for action in actions if "commitInfo" in action), None)
    return json.loads(said) if said else None


def read_entry(log: Path, version: int) -> Entry | None:
    """Return the part of an entry that the fence needs; None if there is no such entry."""
    actions = read_actions(log, version)
    return None if actions is None else _entry(version, actions)


def _entry(version: int, actions: list[dict[str, Any]]) -> Entry:
    document = document_of(actions) or {}
    files = [action[name] for action in actions for name in _NAMES_A_FILE if name in action]
    return Entry(
        version=version,
        epoch=document.get("epoch"),
        batch=document.get("batch"),
        compacted=document.get("compacted", -1) if document else None,
        attempt=document.get("attempt"),
        changes_data=any(file.get("dataChange", True) for file in files),
        changes_table=any(name in action for action in actions for name in _CHANGES_TABLE),
    )


def entries_above(log: Path, version: int) -> list[Entry]:
    """Return the entries above the version, ascending, up to the first missing one."""
    return list(_walk(log, version + 1, step=1))


def newest_entries(log: Path, newest: int) -> list[Entry]:
    """Return the entries from the newest down to the second newest of Tidegate's own, newest first.

    The last driver may not have checked the foreign entries among them.
    """
    found = []
    for entry in _walk(log, newest, step=-1):
        found.append(entry)
        # rule: foreign-change-refused/restore
        if sum(entry.epoch is not None for entry in found) == 2:
            break
    return found


def _walk(log: Path, version: int, *, step: int) -> Iterator[Entry]:
    while (entry := read_entry(log, version)) is not None:
        yield entry
        version += step
