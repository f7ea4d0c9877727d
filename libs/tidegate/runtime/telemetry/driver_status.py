"""The status of a driver, in the file `condition.json` of its operator's state folder.

It is written when it changes, not with every batch. It only informs: no decision depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import BufferFull, Fenced, StateError, TidegateError, UserError

FailureState = Literal["bound reached", "fenced", "refused", "stopped"]
"""States of a driver that ended without a request. `refused`: with a UserError or StateError, before it ever ran."""

State = Literal["standing by", "starting", "running", "waiting", "drained", FailureState]


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """The status of a driver since `since` (ms, wall clock), and why.

    `waits`: the tables that due records wait for, and their partitions. `unclear`: partitions whose newest publication
    Kafka has not confirmed. `recovered`: per partition how its local state was recovered, if it could not be used as it
    was. `recovering`: per partition that waits for its local state, the reason for the rebuild.
    """

    state: State
    since: int
    why: str = ""
    waits: str = ""
    unclear: tuple[int, ...] = ()
    recovered: Mapping[int, str] = field(default_factory=dict)
    recovering: Mapping[int, str] = field(default_factory=dict)


class DriverStatusFile:
    """The status file of one operator, written by the last driver on this machine."""

    def __init__(self, state: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path, self._clock = state / "condition.json", clock
        self._last = DriverStatus(state="drained", since=0)
        self._ran = False
        self.is_own = True
        """False while the file is that of another driver, which runs on the same state folder: it is not written."""

    @property
    def last(self) -> DriverStatus:
        """Return the status that this driver has last written."""
        return self._last

    def read(self) -> DriverStatus | None:
        """Read the status from the file; None if there is no file, or no valid status in it."""
        try:
            document = json.loads(self._path.read_text())
            mappings = {
                name: {int(partition): text for partition, text in document.get(name, {}).items()}
                for name in ("recovered", "recovering")
            }
            found = DriverStatus(**document | mappings | {"unclear": tuple(document["unclear"])})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return found if found.state in get_args(State) else None

    def write(self, state: State, why: str = "") -> None:
        """Write the status, with the current time as `since`, if it changed."""
        self._ran = self._ran or state == "running"
        if (state, why) != (self._last.state, self._last.why):
            self._save(replace(self._last, state=state, why=why, since=self._clock.now_ms()))

    def write_unclear(self, partitions: Iterable[int]) -> None:
        """Write which partitions' publications are not confirmed, if that changed."""
        if (unclear := tuple(sorted(partitions))) != self._last.unclear:
            self._save(replace(self._last, unclear=unclear))

    def write_waits(self, partitions: Mapping[str, Iterable[int]]) -> None:
        """Write which tables due records wait for, and for each in which partitions, if that changed."""
        shown = {table: ", ".join(map(str, where)) for table, where in partitions.items()}
        waits = "; ".join(
            f"due records wait until the table {table} has read further, partitions {where}: check its service"
            for table, where in shown.items()
        )
        if waits != self._last.waits:
            self._save(replace(self._last, waits=waits))

    def write_recovered(self, partition: int, how: str) -> None:
        """Write how the partition's local state was recovered."""
        self._save(replace(self._last, recovered={**self._last.recovered, partition: how}))

    def write_recovering(self, left: Mapping[int, str]) -> None:
        """Write which partitions wait for their local states to be rebuilt, and why, if that changed."""
        if dict(left) != dict(self._last.recovering):
            self._save(replace(self._last, recovering=dict(left)))

    @contextmanager
    def recording_run(self) -> Iterator[None]:
        """Write `starting` at the beginning of the block; at its end write `drained`, or why it failed."""
        self._last, self._ran = DriverStatus(state="drained", since=0), False
        self.write("starting")
        try:
            yield
        except Exception as error:
            self.write(_failure_state(error, ran=self._ran), one_line(error))
            raise
        self.write("drained")

    def _save(self, status: DriverStatus) -> None:
        self._last = status
        if not self.is_own:
            return
        text = json.dumps(vars(status))
        with suppress(OSError):  # a status that cannot be written must not stop the driver
            try:
                self._replace(text)
            except OSError:
                self._overwrite(text)  # on a full disk the old file's space can still be reused

    def _replace(self, text: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        try:
            new.write_text(text)
            new.replace(self._path)
        finally:
            new.unlink(missing_ok=True)

    def _overwrite(self, text: str) -> None:
        with self._path.open("r+") as file:
            file.write(text)
            file.truncate()


def one_line(error: Exception) -> str:
    """Return the error's problem, value and remedy on one line."""
    if not isinstance(error, TidegateError):
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    value = "" if error.value is None else f" ({' '.join(str(error.value).split())})"
    return f"{error.problem}{value}" + (f": {error.remedy}" if error.remedy else "")


def _failure_state(error: Exception, *, ran: bool) -> FailureState:
    if isinstance(error, Fenced):
        return "fenced"
    if isinstance(error, BufferFull):
        return "bound reached"
    return "refused" if not ran and isinstance(error, UserError | StateError) else "stopped"
