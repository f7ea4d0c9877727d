"""The entries of a Delta log: written once, read one by one, listed only where no checkpoint says where to look.

Nothing here costs more when the log has more entries.
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

from tidegate.contracts.errors import StateError, Unavailable, UserError
from tidegate.contracts.naming import COMMIT_METADATA_KEY
from tidegate.contracts.schema import Document
from tidegate.state import disk
from tidegate.state.decisions import Entry

DELTA_LOG = "_delta_log"
STAGING = "_tidegate"
"""Folder of files that are not yet what they are to be; Delta ignores it, as all names with an underscore."""

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
LOOK_AHEAD = 64
"""Versions above a missing entry that are looked at: one that is there shows that the entry is lost."""

_CHANGES_TABLE = ("metaData", "protocol")
_NAMES_A_FILE = ("add", "remove")
_WITHIN_THE_TABLE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_=.-]*(/[a-zA-Z0-9][a-zA-Z0-9_=.-]*)*")
"""All that this table's paths need, whoever writes them: plain names. So nothing has to be decoded or resolved."""


def entry_path(log: Path, version: int) -> Path:
    """Where Delta keeps the entry of a version."""
    return log / DELTA_LOG / f"{version:020d}.json"


def checkpoint_path(log: Path, version: int) -> Path:
    """Where Delta keeps the checkpoint of a version."""
    return log / DELTA_LOG / f"{version:020d}.checkpoint.parquet"


def require_there(log: Path) -> None:
    """Nothing, if the log is there. Unavailable if it is away, as when its lake is not mounted: a write would make a
    new, empty one in its place.
    """
    with disk.disk_errors(log):
        there = (log / DELTA_LOG).is_dir()
    if not there:
        raise Unavailable("the lake is away", value=log, remedy="mount it again, or bring the folder back")


def put(log: Path, version: int, actions: Sequence[dict[str, Any]]) -> bool:
    """The version has exactly these actions; False: the version is taken, by whomever, and nothing was written.

    An OSError says nothing about the outcome; UserError: the file system cannot do it. The bytes are on disk before
    anybody sees them; the name in the folder is when the folder is synced. This is all that an object store would have
    to do in another way.
    """
    with disk.staged(
        log / STAGING, b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in actions)
    ) as file:
        try:
            os.link(file, entry_path(log, version))
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise UserError(
                    "the file system of the lake has no hard links, by which a commit is whole or not there",
                    value=f"{log}: {error.strerror}",
                    remedy="name a folder of a disk or of NFS as `lake`, not a mounted object store",
                ) from error
            raise
    return True


def newest_version(log: Path) -> int | None:
    """Return the newest version that has an entry; None where there is no log.

    Looked for from the newest log checkpoint on; the folder is listed only where there is none. StateError if another
    file of the log bears a newer version: its entry is lost.
    """
    known = _checkpointed(log)
    if known is None or not entry_path(log, known).exists():
        return _newest_listed(log)
    while True:
        newest = next(version for version in count(known) if not entry_path(log, version + 1).exists())
        ahead = range(newest + 2, newest + 2 + LOOK_AHEAD)
        beyond = next((version for version in ahead if entry_path(log, version).exists()), None)
        if beyond is None:
            return newest
        if not entry_path(log, newest + 1).exists():  # else a driver has put both meanwhile
            raise _entries_lost(entry_path(log, beyond))
        known = newest + 1


def _checkpointed(log: Path) -> int | None:
    """Return the version that Delta's hint names; a hint that cannot be read is none."""
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
    """The oldest version that has an entry: clean-up takes the oldest first, so that no gap is below the newest."""
    return bisect_left(range(newest), True, key=lambda version: entry_path(log, version).exists())


def version_at(log: Path, oldest: int, newest: int, time_ms: int) -> int:
    """The version that was the newest one at that time, by its file's time; oldest - 1 if all are younger."""
    return (
        bisect_right(range(newest + 1), time_ms, lo=oldest, key=lambda version: written_ms(entry_path(log, version)))
        - 1
    )


def written_ms(path: Path) -> int:
    """When the file was written, ms."""
    return path.stat().st_mtime_ns // 1_000_000


def print_of(log: Path, version: int) -> tuple[int, int] | None:
    """The entry's file time (ns) and size, by which another entry in its place is noticed; None: there is no entry."""
    try:
        found = entry_path(log, version).stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def read_actions(log: Path, version: int) -> list[dict[str, Any]] | None:
    """The entry's actions; None where there is no such entry. StateError that names the file if it is cut short."""
    path = entry_path(log, version)
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines()]
    except FileNotFoundError:
        return None
    except ValueError:
        actions = []
    if not actions:
        raise StateError(
            "an entry of the operator log is empty or cut short, as a loss of power leaves it",
            value=path,
            remedy="if it is the newest entry, move it away and start again: its batch is then done again",
        )
    refuse_paths_outside(path, actions)
    return actions


def refuse_paths_outside(file: Path, actions: Iterable[dict[str, Any]]) -> None:
    """Raise StateError if the file of the log names a data file outside of the table, or one of the log itself.

    What a log names is read, and deleted by a clean-up; an entry can come from anybody who may write to the lake.
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
    """Return the metadata in an entry's actions; None for an entry that is another's, or the table's making."""
    said = next((action["commitInfo"].get(COMMIT_METADATA_KEY) for action in actions if "commitInfo" in action), None)
    return json.loads(said) if said else None


def read_entry(log: Path, version: int) -> Entry | None:
    """What the fence needs to know of an entry; None where there is none."""
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
    """The entries after the version, ascending, up to the first one that is missing."""
    return list(_walk(log, version + 1, step=1))


def newest_entries(log: Path, newest: int) -> list[Entry]:
    """The entries from the newest down to Tidegate's second newest: what the last driver may not have looked at."""
    found = []
    for entry in _walk(log, newest, step=-1):
        found.append(entry)
        if sum(entry.epoch is not None for entry in found) == 2:
            break
    return found


def _walk(log: Path, version: int, *, step: int) -> Iterator[Entry]:
    while (entry := read_entry(log, version)) is not None:
        yield entry
        version += step
