"""The thread of a driver that writes its commits, heartbeats and incidents to the control database.

A batch neither waits for the database nor fails with it. Commits that could not be written, or exceeded the queue, are
read from the operator's log once the database answers. The log is the source of truth, which the database follows.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import get_args
from uuid import uuid4

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.control import instances, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.instances import DriverEnd, Heartbeat
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.control_sync.backfill import append, catch_up
from tidegate.runtime.telemetry.driver_status import (
    DriverStatus,
    DriverStatusFile,
    FailureState,
    one_line,
)
from tidegate.runtime.telemetry.log_lines import log_fields

lines = logging.getLogger("tidegate")

WRITE_EVERY_S = 0.5
"""Shortest time between two writes; the batches committed meanwhile are written together."""
HEARTBEAT_S = 5.0
"""Interval of the heartbeats of a driver that has nothing else to write."""
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
        address = application.control_database
        self._writer = None if address is None else Writer(address, application, name)
        self._name, self._status_file, self._clock = name, status_file, clock
        self._instance, self._started_ms = uuid4().hex, clock.now_ms()
        self._epoch: int | None = None
        self._noted: deque[BatchMeta] = deque(maxlen=MAX_PENDING)
        self._incidents: list[DriverEnd] = []
        self._wake, self._ended = Event(), Event()
        self._troubles: set[str] = set()

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
        if self._writer is None:
            yield
            return
        self._remember(self._status_file.read())  # the incident of the previous run, which may not have been recorded
        self._ended.clear()
        thread = Thread(target=self._write_on, args=(self._writer,), name=f"control of {self._name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._remember(self._status_file.last)
            self._ended.set()
            self._wake.set()
            thread.join(CLOSE_WITHIN_S)

    def _remember(self, status: DriverStatus | None) -> None:
        if status is not None and status.state in get_args(FailureState):
            self._incidents.append(DriverEnd(clock_ms=status.since, kind=status.state, reason=status.why))

    def _write_on(self, writer: Writer) -> None:
        well = True
        while True:
            if well:
                self._wake.wait(HEARTBEAT_S)
            ended = self._ended.is_set()  # read before writing: what is noted after that gets one more round
            self._wake.clear()
            well = self._write(writer)
            if ended:
                return
            self._ended.wait(WRITE_EVERY_S if well else RETRY_S)

    def _write(self, writer: Writer) -> bool:
        metas = [self._noted.popleft() for _ in range(len(self._noted))]
        incidents = self._incidents[:]
        try:
            writer.write(metas, self._heartbeat(), incidents)
        except Exception as error:  # whatever it is, batches continue: the log has them
            self._log_trouble(one_line(error))
            return False
        del self._incidents[: len(incidents)]
        self._log_recovery()
        return True

    def _log_trouble(self, trouble: str) -> None:
        """Log each reason once until it is over: some take turns, as the errors of a damaged file do."""
        if trouble not in self._troubles:
            line = "%s continues without the control database: %s"
            lines.warning(line, self._name, trouble, extra=log_fields(self._name))
        self._troubles.add(trouble)

    def _log_recovery(self) -> None:
        if self._troubles:
            lines.info("%s: the control database is up to date again", self._name, extra=log_fields(self._name))
        self._troubles.clear()

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


class Writer:
    """The writer of one operator's entries in the control database. After a failure the next call makes up for it."""

    def __init__(self, address: Address, application: Application, name: str) -> None:
        self._address, self._application, self._name = address, application, name
        self._key = OperatorKey(application.application, name)
        self._database: Database | None = None

    def write(self, metas: Sequence[BatchMeta], heartbeat: Heartbeat, incidents: Sequence[DriverEnd]) -> None:
        """Write the heartbeat, the incidents and the batches, and catch up on batches that the database has missed."""
        database, self._database = self._database or self._opened(), None
        with database.begin() as connection:
            instances.record_heartbeat(connection, self._key, heartbeat)
            for each in incidents:
                instances.record_incident(connection, self._key, each)
            follows = append(connection, self._key, metas)
        if not follows or any(meta.action == "compaction" for meta in metas):  # a compaction may drop old batches
            catch_up(database, self._application, self._name)
        self._database = database

    def _opened(self) -> Database:
        """Connect to the database, create its tables if they are missing, and catch up with the log."""
        database = Database(self._address)
        revisions.prepare(database)
        catch_up(database, self._application, self._name)
        return database
