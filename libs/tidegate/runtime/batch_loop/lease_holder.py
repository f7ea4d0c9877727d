"""The lease of a running driver, and the requests that arrive for it; both beside its batches."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock

from tidegate.contracts.errors import TidegateError
from tidegate.runtime.environment import Environment
from tidegate.runtime.telemetry.driver_status import one_line
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.state import driver_leases
from tidegate.state.driver_requests import Inbox, Request
from tidegate.state.lake.port import Lake
from tidegate.state.lease_decisions import DriverLease, renewal_s

lines = logging.getLogger("tidegate")

LOOK_S = 2.0
"""How often a driver looks for a request; if the lake is a folder, it also looks in each round."""


class LeaseHolder:
    """Keeps the lease of one driver, from its first claim to its end, and finds requests.

    `committed_clock` returns the clock of the driver's newest commit. The lease only prevents needless takeovers, so no
    error of the lake stops the driver.
    """

    def __init__(
        self,
        name: str,
        lake: Lake,
        environment: Environment,
        *,
        instance: str,
        takeover_after_ms: int,
        committed_clock: Callable[[], int],
    ) -> None:
        self._name, self._lake, self._environment, self._clock = name, lake, environment, environment.clock
        self._instance, self._takeover_after_ms = instance, takeover_after_ms
        self._committed_clock, self._started_ms = committed_clock, self._clock.now_ms()
        self._lease: DriverLease | None = None
        self._inbox: Inbox | None = None
        self._found: Request | None = None
        self._renewed_at = 0.0
        self._failing = False
        self._lock = Lock()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Renew the lease and look for requests while the block runs; at its end delete the lease."""
        pause_s = min(renewal_s(self._takeover_after_ms), LOOK_S)
        try:
            with self._environment.repeating(self.tick, pause_s, f"lease of {self._name}"):
                yield
        finally:
            self._end()

    def claimed(self, epoch: int) -> None:
        """Write the lease of a new epoch, and delete those of older ones."""
        with self._lock:
            self._lease = DriverLease(
                epoch=epoch,
                instance=self._instance,
                host=socket.gethostname(),
                process=os.getpid(),
                since=self._started_ms,
                takeover_after_ms=self._takeover_after_ms,
            )
            with suppress(TidegateError):  # the next renewal writes it
                self._renew(self._lease)
                driver_leases.delete_below(self._lake, epoch)
            if self._inbox is None:
                self._inbox = Inbox(self._lake, epoch, self._clock)
                with suppress(TidegateError):
                    self._inbox.delete_old_answers()

    def tick(self) -> None:
        """Renew the lease if that is due, and look for a request."""
        with self._lock:
            if self._lease is None:
                return
            try:
                if self._clock.monotonic() - self._renewed_at >= 0.9 * renewal_s(self._takeover_after_ms):
                    self._renew(self._lease)
                self._look(self._lease)
            except TidegateError as error:
                self._log_failure(error)
            else:
                self._failing = False

    def _renew(self, lease: DriverLease) -> None:
        self._lease = lease.renewed(self._committed_clock())
        self._renewed_at = self._clock.monotonic()
        driver_leases.put(self._lake, self._lease)

    def _look(self, lease: DriverLease) -> None:
        if self._inbox is not None:
            self._found = self._inbox.pending(lease.epoch)

    def _log_failure(self, error: TidegateError) -> None:
        if not self._failing:
            line = "%s: its lease could not be renewed, another driver may take over: %s"
            lines.warning(line, self._name, one_line(error), extra=log_fields(self._name))
        self._failing = True

    def _end(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
            if lease is not None:
                with suppress(TidegateError):  # it runs out by itself
                    driver_leases.end(self._lake, lease.epoch)

    # ---- requests

    def request(self) -> Request | None:
        """Return the pending request to this driver, if there is one."""
        if self._lake.place.is_local and self._lease is not None:
            with suppress(TidegateError):
                self._look(self._lease)
        return self._found

    @property
    def stop_request(self) -> Request | None:
        """Return the request to stop, if there is one. This makes no request to the lake."""
        found = self._found
        return found if found is not None and found.kind == "stop" else None

    def done(self, request: Request) -> None:
        """Answer that the request is done. Raise Unavailable while the lake does not answer."""
        with self._lock:
            if self._inbox is not None:
                self._inbox.done(request)
            self._found = None

    def refuse(self, request: Request, why: TidegateError) -> None:
        """Refuse the request; problem, value and remedy are reported to the requester."""
        with self._lock:
            if self._inbox is not None:
                self._inbox.refuse(request, why)
            self._found = None


class NoLease:
    """Stands for the lease of a driver that is not running: a command that works by itself writes none."""

    def claimed(self, epoch: int) -> None:
        """Do nothing."""

    def request(self) -> Request | None:
        """Return None: nobody can ask it for anything."""
        return None

    def done(self, request: Request) -> None:
        """Do nothing: no request was found."""

    def refuse(self, request: Request, why: TidegateError) -> None:
        """Do nothing: no request was found."""


class Ended:
    """The end that was asked for, by a signal to the process or by a request to this driver."""

    def __init__(self, stop: Event, holder: LeaseHolder) -> None:
        self._stop, self._holder = stop, holder

    def is_set(self) -> bool:
        """Return whether the driver is to end."""
        return self._stop.is_set() or self._holder.stop_request is not None

    def has_request(self) -> bool:
        """Return whether a request waits for the driver."""
        return self._holder.request() is not None

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until the process is asked to end; return whether the driver is to end."""
        self._stop.wait(seconds)
        return self.is_set()
