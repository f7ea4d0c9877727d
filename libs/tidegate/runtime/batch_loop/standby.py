"""Looks at the lease of an operator's driver: a driver waits with it for its turn, a command finds out who drives."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event

from tidegate.contracts.clock import Clock
from tidegate.contracts.errors import Unavailable, UserError
from tidegate.runtime.telemetry.driver_status import DriverStatusFile, one_line
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.state import driver_leases
from tidegate.state.delta_log.log_entries import newest_entries, newest_version
from tidegate.state.driver_leases import Look
from tidegate.state.lake.port import Lake
from tidegate.state.lease_decisions import (
    DriverLease,
    Life,
    Sight,
    Succession,
    Turn,
    Watch,
    life_of,
    look_s,
    patience_s,
    renewal_s,
    whose_turn,
)

lines = logging.getLogger("tidegate")


def newest_epoch(log: Lake) -> int:
    """Return the newest epoch in the log; 0 if nobody has claimed the operator yet."""
    version = newest_version(log)
    found = [] if version is None else newest_entries(log, version)
    return max((entry.epoch for entry in found if entry.epoch is not None), default=0)


class DriverWatch:
    """Successive looks at the lease of one operator's driver, on this process's monotonic clock.

    `ended_instance`: the instance id of a state folder on this machine that no driver has; None if unknown.
    `takeover_after_ms`: the application's setting.
    """

    def __init__(self, lake: Lake, ended_instance: str | None, takeover_after_ms: int, clock: Clock) -> None:
        self._lake, self._ended_instance, self._own_ms, self._clock = lake, ended_instance, takeover_after_ms, clock
        self._look: Look | None = None
        self._watch: Watch | None = None
        self._expected = 0

    @property
    def lease(self) -> DriverLease | None:
        """Return the newest lease, as of the newest look; None if there is none, or it cannot be read."""
        return None if self._look is None else self._look.lease

    @property
    def epoch(self) -> int:
        """Return the newest epoch that the newest look showed; 0 if it showed no lease."""
        return 0 if self._look is None else self._look.sight.epoch

    @property
    def was_renewed(self) -> bool:
        """Return whether the lease was renewed between two of the looks."""
        return self._watch is not None and self._watch.renewed

    @property
    def pause_s(self) -> float:
        """Return how long to wait between two looks."""
        return look_s(patience_s(self.lease, self._own_ms), is_local=self._lake.place.is_local)

    def look(self, epoch: int = 0) -> Life:
        """Look again, and return what is known now. `epoch`: the newest one that the log is known to have.

        Raise Unavailable if the lake does not answer.
        """
        self._look = driver_leases.look(self._lake, max(epoch, self._expected), self._look)
        if self._look is None and self._expected:
            self._look = Look(Sight(self._expected, None), None)
        elif self._look is not None and self._look.sight.etag is not None:
            self._expected = 0
        now = self._clock.monotonic()
        if self._look is None:
            self._watch = None
        elif self._watch is None:
            self._watch = Watch(self._look.sight, now)
        else:
            self._watch = self._watch.after(self._look.sight, now, renewal_s(self._own_ms))
        return life_of(self._watch, self.lease, self._ended_instance, self._own_ms)

    def expect(self, epoch: int) -> None:
        """Take the driver of that epoch for alive, though it has no lease yet: it has claimed a moment ago."""
        self._expected = epoch

    def until_known(self) -> Life:
        """Look until it is known whether a driver runs; that takes no longer than a takeover."""
        while (life := self.look()) is Life.UNKNOWN:
            self._clock.sleep(self.pause_s)
        return life


class Standby:
    """The wait of one driver for its turn to claim the operator.

    `newest_epoch`: reads the newest epoch from the operator's log; 0 if there is none. `was_fenced`: a driver has
    claimed the operator a moment ago, so it may have no lease yet. `saw_driver`: whether another driver was seen alive.
    """

    def __init__(
        self,
        name: str,
        watch: DriverWatch,
        newest_epoch: Callable[[], int],
        way: Succession,
        status: DriverStatusFile,
        *,
        was_fenced: bool = False,
    ) -> None:
        self._was_fenced = was_fenced
        self._name, self._watch, self._newest_epoch, self._way, self._status = name, watch, newest_epoch, way, status
        self.saw_driver = self._saw_lease = False

    def await_turn(self, stop: Event) -> int | None:
        """Wait until the driver may claim, and return the newest epoch that it may follow; None if `stop` is set first.

        While the lake does not answer, wait. Raise UserError if another driver runs and this one is not to wait.
        """
        epoch: int | None = None
        while not stop.is_set():
            try:
                epoch = self._first_epoch() if epoch is None else epoch
                life = self._watch.look(epoch)
                self._note(life)
                turn = whose_turn(life, self._way)
                if turn is Turn.CLAIM:
                    seen, epoch = max(epoch, self._watch.epoch), self._newest_epoch()
                    # rule: claimed-meanwhile
                    if epoch <= seen:
                        return epoch
                    self._watch.expect(epoch)
            except Unavailable as failure:
                self._status.write("waiting", one_line(failure))
            else:
                if turn is Turn.REFUSE:
                    raise self._refusal()
                self._report()
            stop.wait(self._watch.pause_s)
        return None

    def _first_epoch(self) -> int:
        """Return the newest epoch of the log as the wait begins."""
        epoch = self._newest_epoch()
        # rule: fenced-expects-lease
        if self._was_fenced:
            self._watch.expect(epoch)
        return epoch

    def _note(self, life: Life) -> None:
        """Note whether another driver is, or was, alive: it renews its lease, or has ended and deleted it."""
        self.saw_driver |= life is Life.ALIVE or (life is Life.NONE and self._saw_lease)
        self._saw_lease |= life is not Life.NONE

    def _refusal(self) -> UserError:
        return UserError(
            f"another driver runs {self._name}",
            value=self._place(),
            remedy="stop it with `tidegate stop`, or start this one with --standby: it waits until the other is gone; "
            "or with --takeover: it fences the other",
        )

    def _report(self) -> None:
        if self._status.last.state != "standing by":
            lines.info("%s stands by: driven by %s", self._name, self._place(), extra=log_fields(self._name))
        self._status.write("standing by", f"driven by {self._place()}")

    def _place(self) -> str:
        return "a driver that has claimed it a moment ago" if self._watch.lease is None else self._watch.lease.place
