"""The logs of an application, kept open from request to request: what has not changed is not read again."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from tidegate.console.pages.known_batches import KnownBatches
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.status import LogReader
from tidegate.state.delta_log.log_entries import (
    check_log_exists,
    checkpointed,
    entry_key,
    newest_above,
    newest_version,
    version_at,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import batch_at, log_after, readable_versions, version_before
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.port import Lake

RECENT_BATCHES = 128
"""So many of the newest batches are kept for what the last minute did; a minute that has more is read from the log."""


MOST_EARLIER = 4
"""So many handles at earlier batches are kept: one page asks for a batch several times, with its charts."""


class _Opened(NamedTuple):
    """A log at a version, and the ETag that the entry of that version had before it was read."""

    log: LogVersion
    etag: str | None

    def is_in_place(self) -> bool:
        """Return whether the entry was not moved away, as remedies for a damaged log say."""
        return self.etag is not None and self.log.lake.etag(entry_key(self.log.version)) == self.etag


class _Oldest(NamedTuple):
    """The oldest version that can be read, and the newest batch there."""

    version: int
    batch: int


class KnownLog:
    """The log of an operator: only what it did not have at an earlier request is read."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._batches = lake, KnownBatches()
        self._opened: _Opened | None = None
        self._earlier: dict[int, _Opened] = {}
        self._oldest: _Oldest | None = None
        self._lock = Lock()

    def newest(self) -> LogVersion | None:
        """Return a handle at the newest version, for this request alone; None if there is no log."""
        with self._lock:
            self._opened = self._current()
            return None if self._opened is None else self._opened.log.pinned_copy()

    def _current(self) -> _Opened | None:
        opened = self._opened
        if opened is None or not opened.is_in_place():
            version = newest_version(self._lake)
            if version is None and opened is not None:
                check_log_exists(self._lake)  # there was one: it is the lake that is away
            return None if version is None else self._open(version)
        if not opened.log.has_successor():
            return opened
        newest = newest_above(self._lake, opened.log.version + 1)
        # after a new checkpoint, the entries since then are fewer, and those before it may be gone
        checkpoint = checkpointed(self._lake)
        is_known = opened.log.checkpoint == (-1 if checkpoint is None else checkpoint)
        return self._open(newest, opened.log if is_known else None)

    def _open(self, version: int, before: LogVersion | None = None) -> _Opened:
        """Return the log at the version. `before`: the log at an earlier one, from which it is read on."""
        etag = self._lake.etag(entry_key(version))
        log = LogVersion.at(self._lake, version) if before is None else before.at_later(version)
        log.newest()  # the handle remembers it for the copies
        return _Opened(log, etag)

    def after(self, batch: int | None) -> LogVersion:
        """Return the log just after the batch, as `log_after` does, with its errors; None: now."""
        if (newest := self.newest()) is None:
            return log_after(self._lake, batch)  # which says that there is no log
        known = newest.newest()
        if batch is None or known is None or batch >= known.batch:
            return newest
        with self._lock:
            return self._after(batch, newest).log.pinned_copy()

    def _after(self, batch: int, newest: LogVersion) -> _Opened:
        """Return the log just after an earlier batch."""
        found = self._earlier.pop(batch, None)
        if found is None or not found.is_in_place():
            found = self._open(version_before(newest, self._oldest_at(newest).version, batch))
        self._earlier[batch] = found
        if len(self._earlier) > MOST_EARLIER:
            del self._earlier[next(iter(self._earlier))]
        return found

    def at_time(self, clock_ms: int) -> LogVersion | None:
        """Return the log as it was at that time, by the clocks of its batches; None if it does not reach back to it."""
        if (newest := self.newest()) is None:
            return None
        oldest = self._oldest_at(newest).version
        version = version_at(self._lake, oldest, newest.version, clock_ms)
        return None if version < oldest else LogVersion.at(self._lake, version)

    def readable(self) -> range:
        """Return the batches after which `after` can show the log, up to the newest one that is known."""
        opened = self._opened
        log = self.newest() if opened is None else opened.log
        newest = None if log is None else log.newest()
        if log is None or newest is None:
            return range(0)
        return range(max(self._oldest_at(log).batch, 0), newest.batch + 1)

    def _oldest_at(self, log: LogVersion) -> _Oldest:
        """Return the oldest version that can be read; it is searched for again once a clean-up has deleted it."""
        known = self._oldest
        if known is None or self._lake.etag(entry_key(known.version)) is None:
            version = readable_versions(self._lake, log.version).start
            self._oldest = known = _Oldest(version, batch_at(self._lake, version))
        return known

    def newest_of(self, log: LogVersion, most: int) -> Sequence[BatchMeta]:
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

    def as_of(self, name: str | None, batch: int | None) -> dict[str, LogVersion]:
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

    def newest(self, name: str) -> LogVersion | None:
        """Return the log at its newest version; None if there is none yet."""
        return self.of(name).newest()

    def since(self, name: str, log: LogVersion, clock_ms: int) -> Sequence[BatchMeta]:
        """Return the batches since then, as `metas_since` does."""
        found = self.of(name).newest_of(log, RECENT_BATCHES)
        first = next((at for at, meta in reversed(list(enumerate(found))) if meta.clock < clock_ms), None)
        return super().since(name, log, clock_ms) if first is None else found[first:]

    def for_page(self) -> LogsOfPage:
        """Return the logs as one page reads them."""
        return LogsOfPage(self)


class LogsOfPage(LogReader):
    """The logs of an application as one page reads them: each at one version, for which the lake is asked once."""

    def __init__(self, logs: KnownLogs) -> None:
        super().__init__(logs.application)
        self._logs = logs
        self._newest: dict[str, LogVersion | None] = {}

    def newest(self, name: str) -> LogVersion | None:
        """Return the log at its newest version when the page first asked for it; None if there was none."""
        if name not in self._newest:
            self._newest.setdefault(name, self._logs.newest(name))
        return self._newest[name]

    def since(self, name: str, log: LogVersion, clock_ms: int) -> Sequence[BatchMeta]:
        """Return the batches since then, as `metas_since` does."""
        return self._logs.since(name, log, clock_ms)
