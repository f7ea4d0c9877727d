"""The logs of an application, kept open from request to request: what has not changed is not read again."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from tidegate.console.pages.known_batches import KnownBatches
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.status import LogReader
from tidegate.state.delta_log.log_entries import entry_key, newest_version, oldest_version, version_at
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import log_after, readable_batches
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.port import Lake

RECENT_BATCHES = 128
"""So many of the newest batches are kept for what the last minute did; a minute that has more is read from the log."""


class _Opened(NamedTuple):
    """A log at a version, and the ETag that the entry of that version had before it was read."""

    log: OperatorLog
    etag: str | None


class KnownLog:
    """The log of an operator: its newest version and batches are read again only once there are others."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._batches = lake, KnownBatches()
        self._opened: _Opened | None = None
        self._lock = Lock()

    def newest(self) -> OperatorLog | None:
        """Return a handle at the newest version, for this request alone; None if there is no log."""
        with self._lock:
            if self._opened is None or not self._is_newest(self._opened):
                self._opened = self._open()
            return None if self._opened is None else self._opened.log.pinned_copy()

    def _open(self) -> _Opened | None:
        version = newest_version(self._lake)
        if version is None:
            return None
        etag, log = self._lake.etag(entry_key(version)), OperatorLog.at(self._lake, version)
        log.newest()  # the handle remembers it for the copies
        return _Opened(log, etag)

    def _is_newest(self, opened: _Opened) -> bool:
        """Return whether no entry follows, and the newest one was not moved away, as remedies for a damaged log say."""
        etag = self._lake.etag(entry_key(opened.log.version))
        return etag is not None and etag == opened.etag and not opened.log.has_successor()

    def after(self, batch: int | None) -> OperatorLog:
        """Return the log just after the batch, as `log_after` does, with its errors; None: now."""
        if (newest := self.newest()) is None:
            return log_after(self._lake, batch)  # which says that there is no log
        known = newest.newest()
        if batch is None or (known is not None and batch >= known.batch):
            return newest
        return log_after(self._lake, batch, newest.version)

    def at_time(self, clock_ms: int) -> OperatorLog | None:
        """Return the log as it was at that time, by the clocks of its batches; None if it does not reach back to it."""
        if (newest := self.newest()) is None:
            return None
        oldest = oldest_version(self._lake, newest.version)
        version = version_at(self._lake, oldest, newest.version, clock_ms)
        return None if version < oldest else OperatorLog.at(self._lake, version)

    def readable(self) -> range:
        """Return the batches after which `after` can show the log."""
        return range(0) if (newest := self.newest()) is None else readable_batches(newest)

    def newest_of(self, log: OperatorLog, most: int) -> Sequence[BatchMeta]:
        """Return the metadata of the newest batches of the log at that version, oldest first; at most `most`."""
        return self._batches.newest_of(log, most)


class KnownLogs(LogReader):
    """The known logs of an application, by the operator's name."""

    def __init__(self, application: Application) -> None:
        super().__init__(application)
        self._known: dict[str, KnownLog] = {}

    def of(self, name: str) -> KnownLog:
        """Return the log of an operator, or of a table that one reads."""
        return self._known.setdefault(name, KnownLog(open_lake(self.application.lake / name)))

    def as_of(self, name: str | None, batch: int | None) -> dict[str, OperatorLog]:
        """Return the logs of all operators that have one, by name: now, or when the operator committed the batch.

        Those that do not reach back to that time are left out. Raise UserError if the operator's own does not.
        """
        names = self.application.operators
        if name is None or batch is None:
            found = {each: self.newest(each) for each in names}
        else:
            then = self.of(name).after(batch)
            clock_ms = -1 if (meta := then.newest()) is None else meta.clock
            found = {each: then if each == name else self.of(each).at_time(clock_ms) for each in names}
        return {each: log for each, log in found.items() if log is not None}

    def newest(self, name: str) -> OperatorLog | None:
        """Return the log at its newest version; None if there is none yet."""
        return self.of(name).newest()

    def since(self, name: str, log: OperatorLog, clock_ms: int) -> Sequence[BatchMeta]:
        """Return the batches since then, as `metas_since` does."""
        found = self.of(name).newest_of(log, RECENT_BATCHES)
        first = next((at for at, meta in reversed(list(enumerate(found))) if meta.clock < clock_ms), None)
        return super().since(name, log, clock_ms) if first is None else found[first:]
