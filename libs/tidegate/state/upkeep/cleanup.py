"""Delete log entries and data files of versions that are older than the rewind window of an operator log.

A version can be read as long as its data files, the checkpoint before it and the log entries between the two exist. So
a clean-up chooses the newest checkpoint that is older than the window. It deletes the entries before that checkpoint,
oldest first, and the data files that those entries removed. Each clean-up does a bounded part of this, however long the
log is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.state.delta_log.actions import Action
from tidegate.state.delta_log.log_entries import (
    DELTA_LOG,
    checkpoint_key,
    clock_at,
    document_of,
    entry_key,
    is_checkpointed,
    oldest_version,
    read_actions,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import newest_old
from tidegate.state.upkeep.batch_history import recorded_through
from tidegate.state.upkeep.orphans import sweep

MIN_WINDOW_MS = 3_600_000
"""Shortest rewind window: readers in the middle of a query have to find their files."""

MAX_ENTRIES = 2_048
"""Most entries that one clean-up deletes: several times as many as are written between two compactions."""


def clean_up(log: LogVersion, *, clock_ms: int, rewind_window_ms: int, pinned: int | None = None) -> int:
    """Delete versions older than the rewind window; return the number of data files deleted, orphans included.

    Versions within the window stay readable, and so do `pinned` and all later ones. Older versions that are left over
    are deleted by the next clean-ups. Only the driver may call this, with its handle at its own commit and no attempt
    running.
    """
    oldest = oldest_version(log.lake, log.version)
    # rule: window-at-least-an-hour
    behind = _newest_behind(log, oldest, clock_ms, max(rewind_window_ms, MIN_WINDOW_MS))
    # rule: window-readable
    first = _checkpoint_before(log.lake, oldest, behind if pinned is None else min(behind, pinned))
    ended = range(oldest, min(first, oldest + MAX_ENTRIES))
    deleted = [_delete_version(log, version, actions) for version, actions in _recorded(log, ended)]
    # rule: orphans-after-a-week/swept
    return sum(deleted) + sweep(log, oldest=oldest + len(deleted), clock_ms=clock_ms)


def _recorded(log: LogVersion, versions: range) -> Iterator[tuple[int, list[Action]]]:
    """Yield the versions with their actions, up to the first entry whose batch has no `meta` row yet."""
    recorded = recorded_through(log.newest())
    for version in versions:
        actions = read_actions(log.lake, version) or []
        document = document_of(actions)
        # rule: entry-until-row
        if document is not None and document["batch"] > recorded:
            return
        yield version, actions


def _newest_behind(log: LogVersion, oldest: int, clock_ms: int, window_ms: int) -> int:
    """Return the newest version written before the window, by the entries' clocks; `oldest` - 1 if there is none.

    Read entries one by one, because a clock can be wrong, up to the first one in the window. Read at most twice as many
    entries as one clean-up can delete.
    """
    looked_at = range(oldest, min(oldest + 2 * MAX_ENTRIES, log.version + 1))
    times = (clock_at(log.lake, version) for version in looked_at)
    return oldest + newest_old(times, clock_ms, window_ms)


def _checkpoint_before(log: Lake, oldest: int, version: int) -> int:
    """Return the newest version at or before `version` that can be read without earlier ones; `oldest` if none can.

    With `oldest`, nothing is deleted.
    """
    return next((at for at in range(version, oldest, -1) if is_checkpointed(log, at)), oldest)


def _delete_version(log: LogVersion, version: int, actions: Sequence[Action]) -> int:
    """Delete the data files that the version removed, then its log files; return the number of such data files.

    Keep data files that a later version added again. The entry is the last one, so that an interruption leaves no gap.
    """
    removed = [action["remove"]["path"] for action in actions if "remove" in action]
    # rule: restored-file-kept
    gone = [path for path in removed if not log.has_file(path)]
    log.lake.delete([*gone, checkpoint_key(version), f"{DELTA_LOG}/{version:020d}.crc"])
    log.lake.delete([entry_key(version)])
    return len(gone)
