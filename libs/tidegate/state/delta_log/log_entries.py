"""Write, find and read the entries of a Delta log.

An entry is written once. The folder is listed only if no checkpoint shows where to look. With a checkpoint, the cost
does not grow with the number of entries.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from tidegate.contracts.batch_metadata import Document, is_complete
from tidegate.contracts.errors import StateError, Unavailable
from tidegate.contracts.naming import COMMIT_METADATA_KEY
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import Entry

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = f"{DELTA_LOG}/_last_checkpoint"
"""Key of Delta's hint, which names the version of the newest log checkpoint."""

LOOK_AHEAD = 64
"""Number of versions checked above a missing entry: if one of them exists, the missing entry is lost."""

_OF_A_VERSION = re.compile(rf"{DELTA_LOG}/\d{{20}}\..*")
_ENTRY = re.compile(rf"{DELTA_LOG}/(\d{{20}})\.json")
"""Whole names only: stores list uploads under way under longer ones."""

_CHANGES_TABLE = ("metaData", "protocol")
_NAMES_A_FILE = ("add", "remove")
_WITHIN_THE_TABLE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_=.-]*(/[a-zA-Z0-9][a-zA-Z0-9_=.-]*)*")
"""The paths that are accepted: plain names with `/` between them, so that nothing has to be decoded or resolved."""


def entry_key(version: int) -> str:
    """Return the key of a version's entry."""
    return f"{DELTA_LOG}/{version:020d}.json"


def entry_place(log: Lake, version: int) -> Place:
    """Return where a version's entry is, for messages."""
    return log.place / entry_key(version)


def checkpoint_key(version: int) -> str:
    """Return the key of a version's checkpoint."""
    return f"{DELTA_LOG}/{version:020d}.checkpoint.parquet"


def check_log_exists(log: Lake) -> None:
    """Raise Unavailable if there is no log, as when its lake is not mounted.

    Without this check, what is missing would count as deleted.
    """
    if next(log.list_after(DELTA_LOG), None) is None:
        raise Unavailable("the lake is unavailable", value=log.place, remedy="mount it again, or restore the folder")


def encoded(actions: Iterable[dict[str, Any]]) -> bytes:
    """Return the content of an entry with these actions."""
    return b"\n".join(json.dumps(action, separators=(",", ":")).encode() for action in actions)


def put_entry(log: Lake, version: int, actions: Iterable[dict[str, Any]]) -> bool:
    """Write the entry of the version, if there is none, as a whole; return False if the version is taken."""
    return log.put_if_absent(entry_key(version), encoded(actions))


def newest_version(log: Lake) -> int | None:
    """Return the newest version that has an entry; None if there is no log.

    Search upwards from the newest log checkpoint; list the entries only if there is no checkpoint. Raise StateError if
    an entry of a newer version exists above a missing entry: that entry is lost.
    """
    known = checkpointed(log)
    # rule: bounded-by-log-length/version
    if known is None or not _has_entry(log, known):
        known = _newest_listed(log)
    return None if known is None else newest_above(log, known)


def newest_above(log: Lake, known: int) -> int:
    """Return the newest version that has an entry, from one that has one upwards.

    Raise StateError if an entry of a newer version exists above a missing entry: that entry is lost.
    """
    known = _listed_up_to(log, known)
    while True:
        newest = next(version for version in count(known) if not _has_entry(log, version + 1))
        beyond = _entry_beyond(log, newest + 1)
        # rule: lost-entry-stops
        if beyond is None:
            return newest
        if not _has_entry(log, newest + 1):  # else a driver has written both entries meanwhile
            raise _entries_lost(log, entry_key(beyond))
        known = newest + 1


def _listed_up_to(log: Lake, known: int) -> int:
    """Return the version up to which an object store lists entries without a gap; in a folder, `known` itself.

    One listing replaces a question for each entry. It decides nothing: the caller looks further by single questions.
    """
    if log.place.is_local:
        return known
    for found in log.list_after(DELTA_LOG, entry_key(known)):
        if _version_of(found.key) == known + 1:
            known += 1
    return known


def _has_entry(log: Lake, version: int) -> bool:
    return log.etag(entry_key(version)) is not None


def _entry_beyond(log: Lake, missing: int) -> int | None:
    """Return the version of an entry above a missing one, at most LOOK_AHEAD above; None if there is none.

    An object store answers that with one listing; in a folder, a listing would read the names of all entries.
    """
    ahead = range(missing + 1, missing + 1 + LOOK_AHEAD)
    if log.place.is_local:
        return next((version for version in ahead if _has_entry(log, version)), None)
    listed = (_version_of(found.key) for found in log.list_after(DELTA_LOG, entry_key(missing)))
    return next((version for version in listed if version is not None), None)


def _version_of(key: str) -> int | None:
    """Return the version of the entry with the key; None for every other object, such as an upload under way."""
    found = _ENTRY.fullmatch(key)
    return None if found is None else int(found[1])


def checkpointed(log: Lake) -> int | None:
    """Return the version that Delta's `_last_checkpoint` names; None if that file is missing or cannot be read."""
    try:
        return int(json.loads(log.get(LAST_CHECKPOINT) or b"")["version"])
    except (ValueError, KeyError, TypeError):
        return None


def _newest_listed(log: Lake) -> int | None:
    """Return the newest version that a listing shows, 0 if it shows none; None if there is no log.

    Raise StateError if the entry of the newest version is lost.
    """
    keys = [found.key for found in log.list_after(DELTA_LOG) if _OF_A_VERSION.fullmatch(found.key)]
    if all(_version_of(key) is None for key in keys):
        return 0 if _has_entry(log, 0) else None
    newest = int(keys[-1].removeprefix(f"{DELTA_LOG}/")[:20])
    # rule: expected-version
    if not _has_entry(log, newest):
        raise _entries_lost(log, keys[-1])
    return newest


def _entries_lost(log: Lake, newer: str) -> StateError:
    return StateError(
        "the log's newest version is not the one that its entries show",
        value=log.place / newer,
        remedy="bring the log's entries back from a copy",
    )


def oldest_version(log: Lake, newest: int) -> int:
    """Return the oldest version that has an entry.

    Clean-up deletes the oldest entries first and so leaves no gap; that allows a binary search.
    """
    return bisect_left(range(newest), True, key=lambda version: _has_entry(log, version))


def oldest_readable(log: Lake, oldest: int, newest: int) -> int | None:
    """Return the oldest version that can be read; None if none can be, up to the newest. `oldest`: that has an entry.

    A clean-up may end between two checkpoints. Then the entries before the second one are left, and cannot be read.
    """
    if oldest == 0:
        return 0
    # rule: entry-until-row/read
    return next((version for version in range(oldest, newest + 1) if is_checkpointed(log, version)), None)


def is_checkpointed(log: Lake, version: int) -> bool:
    """Return whether the version can be read without earlier entries.

    It has a checkpoint, and the metadata in its entry is complete. A checkpoint that another program wrote does not
    count if that metadata builds upon earlier entries.
    """
    if log.etag(checkpoint_key(version)) is None:
        return False
    document = document_of(read_actions(log, version) or ())
    # rule: checkpoint-complete
    return document is not None and is_complete(document)


def version_at(log: Lake, oldest: int, newest: int, time_ms: int) -> int:
    """Return the newest version at that time, by the clocks of entries; `oldest` - 1 if all are later."""
    return bisect_right(range(newest + 1), time_ms, lo=oldest, key=lambda version: clock_at(log, version)) - 1


def clock_at(log: Lake, version: int) -> int:
    """Return the clock of the version's entry, ms: its writer's, at the time of the batch; 0 if it has none."""
    return clock_of(read_actions(log, version) or ())


def clock_of(actions: Iterable[dict[str, Any]]) -> int:
    """Return the clock in an entry's actions, ms; 0 if it has none."""
    return next((action["commitInfo"].get("timestamp") or 0 for action in actions if "commitInfo" in action), 0)


def read_actions(log: Lake, version: int) -> list[dict[str, Any]] | None:
    """Return the entry's actions; None if there is no entry.

    Raise StateError, naming the entry, if it is empty or cut short, or names a file that is not the table's.
    """
    content, place = log.get(entry_key(version)), entry_place(log, version)
    if content is None:
        return None
    try:
        actions = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        actions = []
    # rule: damaged-entry-stops
    if not actions:
        raise StateError(
            "an entry of the operator log is empty or truncated, as after a power failure",
            value=place,
            remedy="if it is the newest entry, move it away and start again: its batch is then done again",
        )
    # rule: path-inside-table
    refuse_paths_outside(place, actions)
    return actions


def refuse_paths_outside(file: Place, actions: Iterable[dict[str, Any]]) -> None:
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


def read_entry(log: Lake, version: int) -> Entry | None:
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


def entries_above(log: Lake, version: int) -> list[Entry]:
    """Return the entries above the version, ascending, up to the first missing one."""
    return list(_walk(log, version + 1, step=1))


def newest_entries(log: Lake, newest: int) -> list[Entry]:
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


def _walk(log: Lake, version: int, *, step: int) -> Iterator[Entry]:
    while (entry := read_entry(log, version)) is not None:
        yield entry
        version += step
