"""Removal of what lies behind the rewind window of an operator log. May import: the standard library, contracts, state.

A version can be read as long as its data files, the checkpoint before it and the log entries between both are there.
So one checkpoint is chosen, the newest one behind the window: the log before it goes, and the files that were removed
at it or before. No folder of data files is listed; files that no commit ever named are not found here.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.state import disk
from tidegate.state.log_entries import DELTA_LOG, read_actions, versions
from tidegate.state.operator_log import OperatorLog

MIN_WINDOW_MS = 3_600_000
"""At least this much stays, so that readers in the middle of a query find their files."""

_VERSION = re.compile(r"(\d{20})\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")


def clean_up(log: OperatorLog, *, clock_ms: int, rewind_window_ms: int, pinned: int | None = None) -> int:
    """Versions of the window can be read, and `pinned` and those after it; older ones are gone.

    Gives the number of files deleted. By the driver alone, with its handle at its own commit and no attempt running.
    """
    oldest = _oldest_to_keep(log.path, clock_ms - max(rewind_window_ms, MIN_WINDOW_MS), pinned)
    checkpoint = max((version for version, _ in _log_files(log.path, _CHECKPOINT) if version <= oldest), default=None)
    if checkpoint is None:
        return 0
    live = {file.path for file in log.all_files()}
    with disk.disk_errors(log.path):
        deleted = sum(
            _delete_removed(log.path, version, live) for version in versions(log.path) if version <= checkpoint
        )
        for version, path in _log_files(log.path, _VERSION):
            if version < checkpoint:
                path.unlink()
    return deleted


def _oldest_to_keep(log: Path, before_ms: int, pinned: int | None) -> int:
    """The version that was the newest one at that time, or the pinned one if it is older; -1: every one is younger."""
    oldest = -1
    for version in versions(log):
        if _written_ms(log, version) > before_ms or (pinned is not None and version > pinned):
            break
        oldest = version
    return oldest


def _written_ms(log: Path, version: int) -> int:
    said = [
        action["commitInfo"].get("timestamp", 0)
        for action in read_actions(log, version) or ()
        if "commitInfo" in action
    ]
    return max(said, default=0)


def _delete_removed(log: Path, version: int, live: set[str]) -> int:
    """The data files that the version removed are gone, but for those that a later version brought back."""
    removed = [action["remove"]["path"] for action in read_actions(log, version) or () if "remove" in action]
    gone = [log / path for path in removed if path not in live and (log / path).exists()]
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone)


def _log_files(log: Path, form: re.Pattern[str]) -> list[tuple[int, Path]]:
    """(version, path) of the log's files with names of the form, oldest first: a crash leaves no gap in the middle."""
    paths = sorted((log / DELTA_LOG).iterdir())
    return [(int(found[1]), path) for path in paths if (found := form.match(path.name))]
