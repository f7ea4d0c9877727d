"""Removal of what lies behind the rewind window of an operator log.

A version can be read as long as its data files, the checkpoint before it and the log entries between both are there. So
one checkpoint is chosen, the newest one behind the window: the log before it goes, the oldest entry first, and the
files that were removed before it. Each clean-up does a bounded part of that, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.contracts.schema import is_complete
from tidegate.state import disk
from tidegate.state.decisions import newest_old
from tidegate.state.delta_log.actions import Action
from tidegate.state.delta_log.log_entries import (
    DELTA_LOG,
    checkpoint_path,
    document_of,
    entry_path,
    oldest_version,
    read_actions,
    written_ms,
)
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.upkeep.batch_history import recorded_through
from tidegate.state.upkeep.orphans import sweep

MIN_WINDOW_MS = 3_600_000
"""At least this much stays, so that readers in the middle of a query find their files."""

MAX_ENTRIES = 2_048
"""Entries that one clean-up takes at the most: several times as many as come between two compactions."""


def clean_up(log: OperatorLog, *, clock_ms: int, rewind_window_ms: int, pinned: int | None = None) -> int:
    """Versions of the window can be read, and `pinned` and those after it; older ones are gone, or go next time.

    Gives the number of data files deleted, those that no commit ever named included. By the driver alone, with its
    handle at its own commit and no attempt running.
    """
    with disk.disk_errors(log.path):
        oldest = oldest_version(log.path, log.version)
        behind = _newest_behind(log, oldest, clock_ms, max(rewind_window_ms, MIN_WINDOW_MS))
        first = _checkpoint_before(log.path, oldest, behind if pinned is None else min(behind, pinned))
        ended = range(oldest, min(first, oldest + MAX_ENTRIES))
        deleted = [_delete_version(log, version, actions) for version, actions in _recorded(log, ended)]
        return sum(deleted) + sweep(log, oldest=oldest + len(deleted), clock_ms=clock_ms)


def _recorded(log: OperatorLog, versions: range) -> Iterator[tuple[int, list[Action]]]:
    """Return the versions with their actions, as far as `meta` rows tell what these entries tell of batches."""
    recorded = recorded_through(log.newest())
    for version in versions:
        actions = read_actions(log.path, version) or []
        document = document_of(actions)
        if document is not None and document["batch"] > recorded:
            return
        yield version, actions


def _newest_behind(log: OperatorLog, oldest: int, clock_ms: int, window_ms: int) -> int:
    """Return the newest version that was written before the window, by the entries' file times; `oldest` - 1: none.

    Looks no further than what a clean-up can take, and at every entry there: a file time can be wrong, as a clock can.
    """
    looked_at = range(oldest, min(oldest + 2 * MAX_ENTRIES, log.version + 1))
    times = (written_ms(entry_path(log.path, version)) for version in looked_at)
    return oldest + newest_old(times, clock_ms, window_ms)


def _checkpoint_before(log: Path, oldest: int, version: int) -> int:
    """The newest checkpoint at the version or before; `oldest` if there is none: then the log has to stay as it is.

    One of somebody else does not count where the metadata of its version builds upon earlier entries.
    """
    found = (at for at in range(version, oldest, -1) if checkpoint_path(log, at).exists() and _is_complete(log, at))
    return next(found, oldest)


def _is_complete(log: Path, version: int) -> bool:
    document = document_of(read_actions(log, version) or ())
    return document is not None and is_complete(document)


def _delete_version(log: OperatorLog, version: int, actions: Sequence[Action]) -> int:
    """The data files that the version removed are gone, but for those that a later version brought back; then it."""
    removed = [action["remove"]["path"] for action in actions if "remove" in action]
    gone = [log.path / path for path in removed if not log.has_file(path) and (log.path / path).exists()]
    for path in (*gone, *_log_files(log.path, version)):
        path.unlink(missing_ok=True)
    return len(gone)


def _log_files(log: Path, version: int) -> tuple[Path, ...]:
    """The files of the log that a version can have; its entry is the last one, for an interruption to leave no gap."""
    checksum = log / DELTA_LOG / f"{version:020d}.crc"
    return checkpoint_path(log, version), checksum, entry_path(log, version)
