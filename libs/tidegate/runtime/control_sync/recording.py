"""The thread that writes the commits, heartbeats and incidents of a process's drivers to their control database.

A batch neither waits for the database nor fails with it. Commits that could not be written, or exceeded the queue, are
read from the operator's log once the database answers. The log is the source of truth, which the database follows.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import get_args
from uuid import uuid4

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.control.address import Address
from tidegate.control.instances import DriverEnd, Heartbeat
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.control_sync.writer import News, Writer
from tidegate.runtime.telemetry.driver_status import (
    DriverStatus,
    DriverStatusFile,
    FailureState,
    one_line,
)

lines = logging.getLogger("tidegate")

WRITE_EVERY_S = 0.5
"""Shortest time between two writes; what the drivers have to record meanwhile is written together."""
HEARTBEAT_S = 5.0
"""Interval of the heartbeats of all drivers."""
RETRY_S = 5.0
"""Pause after an error of the database."""
CLOSE_WITHIN_S = 5.0
"""Timeout for the last writes when a driver ends."""
MAX_PENDING = 1_000
"""Largest number of batches queued for writing; older ones are read from the log."""


class Recorder:
    """The recording of one driver in the control database. Without such a database it does nothing."""

    def __init__(
        self, application: Application, name: str, status_file: DriverStatusFile, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._application, self._name = application, name
        self._status_file, self._clock = status_file, clock
        self._instance, self._started_ms = uuid4().hex, clock.now_ms()
        self._epoch: int | None = None
        self._noted: deque[BatchMeta] = deque(maxlen=MAX_PENDING)
        self._incidents: list[DriverEnd] = []
        self._wake = Event()  # until a run, nobody waits for it
        self.ending, self.ended = Event(), Event()

    def note(self, meta: BatchMeta) -> None:
        """Queue a committed batch for writing. Never wait."""
        self._epoch = meta.epoch
        self._noted.append(meta)
        self._wake.set()

    @contextmanager
    def recording_run(self) -> Iterator[None]:
        """Record the driver in the database while the block runs, and then how it ended.

        The end is recorded only if the database answers within CLOSE_WITHIN_S.
        """
        address = self._application.control_database
        if address is None:
            yield
            return
        self._remember(self._status_file.read())  # the incident of the previous run, which may not have been recorded
        self.ending.clear()
        self.ended.clear()
        thread = RecordingThread.of(address, self)
        self._wake = thread.wake
        try:
            yield
        finally:
            self._remember(self._status_file.last)
            self.ending.set()
            thread.hurry()
            self.ended.wait(CLOSE_WITHIN_S)

    def _remember(self, status: DriverStatus | None) -> None:
        if status is not None and status.state in get_args(FailureState):
            self._incidents.append(DriverEnd(clock_ms=status.since, kind=status.state, reason=status.why))

    @property
    def has_batches(self) -> bool:
        """Return whether batches are queued."""
        return bool(self._noted)

    def news(self) -> News:
        """Take the queued batches, and return them with the heartbeat and the incidents."""
        return News(
            application=self._application,
            name=self._name,
            metas=[self._noted.popleft() for _ in range(len(self._noted))],
            heartbeat=self._heartbeat(),
            incidents=self._incidents[:],
        )

    def forget(self, incidents: Sequence[DriverEnd]) -> None:
        """Forget these incidents, the oldest ones, once they are recorded."""
        del self._incidents[: len(incidents)]

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            instance=self._instance,
            host=socket.gethostname(),
            pid=os.getpid(),
            epoch=self._epoch,
            state=self._status_file.last.state,
            started_ms=self._started_ms,
            heartbeat_ms=self._clock.now_ms(),
        )


class RecordingThread:
    """The thread that writes what the drivers of this process have to record in one control database.

    One thread and one transaction serve all: SQLite has one writer at a time, for which a hundred threads would queue.
    """

    def __init__(self, address: Address) -> None:
        self.wake = Event()
        self._hurry = Event()
        self._address, self._writer = address, Writer(address)
        self._recorders: list[Recorder] = []
        self._all_written_at = -math.inf
        self._troubles: set[str] = set()

    @classmethod
    def of(cls, address: Address, recorder: Recorder) -> RecordingThread:
        """Return the thread of that database, which records this driver from now on; start it if there is none."""
        with _lock:
            thread = _threads.get(address.url) or cls(address)
            thread._recorders.append(recorder)
            if address.url not in _threads:
                _threads[address.url] = thread
                Thread(target=thread._run, name="control database", daemon=True).start()
        thread.hurry()
        return thread

    def hurry(self) -> None:
        """Write everything now, even if the last write was a moment ago."""
        self._all_written_at = -math.inf
        self.wake.set()
        self._hurry.set()

    def _run(self) -> None:
        well = True
        while self._recorders:
            if well:
                self.wake.wait(HEARTBEAT_S)
            self.wake.clear()
            self._hurry.clear()
            ending = [recorder for recorder in self._recorders if recorder.ending.is_set()]
            due = self._due()
            well = not due or self._write(due)
            self._remove(ending)
            self._hurry.wait(WRITE_EVERY_S if well else RETRY_S)

    def _due(self) -> list[Recorder]:
        """Return the drivers that have something to record: with a heartbeat due, or after a failure, all."""
        now = SYSTEM_CLOCK.monotonic()
        if not self._troubles and now - self._all_written_at < HEARTBEAT_S:
            return [recorder for recorder in self._recorders if recorder.has_batches]
        self._all_written_at = now
        return self._recorders[:]

    def _remove(self, recorders: Sequence[Recorder]) -> None:
        with _lock:
            self._recorders = [recorder for recorder in self._recorders if recorder not in recorders]
            if not self._recorders:
                del _threads[self._address.url]
        for recorder in recorders:
            recorder.ended.set()

    def _write(self, recorders: Sequence[Recorder]) -> bool:
        news = [recorder.news() for recorder in recorders]
        who = news[0].application.application
        try:
            failures = self._writer.write(news)
        except Exception as error:  # whatever it is, batches continue: the logs have them
            self._log_trouble(who, one_line(error))
            return False
        for recorder, each in zip(recorders, news, strict=True):
            if each.name not in failures:
                recorder.forget(each.incidents)
        for name, failure in failures.items():
            self._log_trouble(name, one_line(failure))
        if not failures:
            self._log_recovery(who)
        return not failures

    def _log_trouble(self, who: str, trouble: str) -> None:
        """Log each reason once until it is over: some take turns, as the errors of a damaged file do."""
        if trouble not in self._troubles:
            lines.warning("%s continues without the control database: %s", who, trouble)
        self._troubles.add(trouble)

    def _log_recovery(self, who: str) -> None:
        if self._troubles:
            lines.info("%s: the control database is up to date again", who)
        self._troubles.clear()


_threads: dict[str, RecordingThread] = {}
_lock = Lock()
