"""Retries: wait out outages, and retry other errors a few times."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import EngineError, Fenced, OutputTooLarge, Superseded, Unavailable
from tidegate.runtime.batch_loop.claim import Overtaken
from tidegate.runtime.telemetry.driver_status import DriverStatusFile, one_line
from tidegate.runtime.telemetry.log_lines import log_fields

lines = logging.getLogger("tidegate")

PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0)
"""Pauses after consecutive failures; the failure after the last pause ends the driver with its error."""
LONGEST_WAIT_S = 4.0
"""Longest pause during an outage, and so the longest delay until its end is noticed."""
LOG_INTERVAL_S = 30.0
"""Interval of the log lines during an outage; the first is written at once."""

Answer = TypeVar("Answer")


class Stop(Protocol):
    """An event that ends the retries."""

    def is_set(self) -> bool:
        """Return whether it is set."""
        ...

    def wait(self, timeout: float, /) -> bool:
        """Wait that long, or until it is set; return whether it is set."""
        ...


def pause_after(failure: Exception, tries: int) -> float | None:
    """Return the seconds until the next try, after `tries` failures of this sort (from 1); None: do not retry."""
    if isinstance(failure, OutputTooLarge | Overtaken) or not isinstance(failure, EngineError | Fenced | Superseded):
        return None
    if isinstance(failure, Unavailable):
        return min(PAUSES_S[min(tries, len(PAUSES_S)) - 1], LONGEST_WAIT_S)
    return PAUSES_S[tries - 1] if tries <= len(PAUSES_S) else None


class Retries:
    """The retry policy of one driver, which also logs failures and writes them to the driver's status."""

    def __init__(self, name: str, condition: DriverStatusFile, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name, self._condition, self._clock = name, condition, clock

    def run(self, work: Callable[[], Answer], stop: Stop) -> Answer | None:
        """Return the work's result, with retries; None if `stop` is set first. Raise errors that are not retried."""
        tries, waiting = {True: 0, False: 0}, _Waiting(self._name, self._clock)
        while not stop.is_set():
            try:
                answer = work()
            except Exception as failure:
                away = isinstance(failure, Unavailable)
                tries[away] += 1
                pause_s = pause_after(failure, tries[away])
                if pause_s is None:
                    raise
                waiting.log_failure(failure, pause_s, away=away)
                self._condition.write("waiting", one_line(failure))
                stop.wait(pause_s)
            else:
                waiting.log_success()
                self._condition.write("running")
                return answer
        return None


class _Waiting:
    """The log lines about one series of failures; during an outage they are written at intervals."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock, self._fields = name, clock, log_fields(name)
        self._since = self._logged_at = 0.0

    def log_failure(self, failure: Exception, pause_s: float, *, away: bool) -> None:
        """Log the failure; during an outage only every LOG_INTERVAL_S seconds."""
        now = self._clock.monotonic()
        self._since = self._since or now
        if not away:
            line = "%s: trying again in %.1f s: %s"
            lines.warning(line, self._name, pause_s, one_line(failure), extra=self._fields)
        elif not self._logged_at or now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            line = "%s waits, for %.0f s: %s"
            lines.warning(line, self._name, now - self._since, one_line(failure), extra=self._fields)

    def log_success(self) -> None:
        """Log that the work has succeeded, if it had failed before."""
        if self._since:
            lines.info(
                "%s continues, after %.1f s", self._name, self._clock.monotonic() - self._since, extra=self._fields
            )
