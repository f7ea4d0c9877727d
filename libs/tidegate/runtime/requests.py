"""How a command asks the running driver of an operator to do something. May import: the standard library, contracts.

A request is an empty file in the operator's state folder; the driver removes it when it is done. A lock file tells
whether a driver runs on this machine.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from tidegate.contracts.errors import EngineError

Request = Literal["compact", "flush"]


class Requests:
    """The requests of one operator."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "requests"
        self._lock = state / "driver.lock"
        self._folder.mkdir(parents=True, exist_ok=True)

    def pending(self) -> list[Request]:
        """The requests that wait, in alphabetical order."""
        names = {path.name for path in self._folder.iterdir()}
        return [request for request in get_args(Request) if request in names]

    def done(self, request: Request) -> None:
        """The request no longer waits."""
        (self._folder / request).unlink(missing_ok=True)

    def ask(self, request: Request, timeout_s: float) -> None:
        """The running driver has done it. Raises EngineError when it has not within the time."""
        path = self._folder / request
        path.touch()
        deadline = time.monotonic() + timeout_s
        try:
            while path.exists():
                if time.monotonic() > deadline or not self.driven():
                    raise EngineError(
                        f"the driver has not done it: {request}",
                        value=f"it has ended, or did not come to it within {timeout_s:.0f} s",
                        remedy="see `tidegate status` and the log of the service, then ask again",
                    )
                time.sleep(0.05)
        finally:
            path.unlink(missing_ok=True)  # nobody waits for it any more

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Others see that a driver runs here. A second one (a takeover) goes on without the lock: Delta fences it."""
        with self._lock.open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.write(str(os.getpid()))
                held.flush()
            except BlockingIOError:
                pass
            yield

    def driven(self) -> bool:
        """True while a driver runs on this machine."""
        with self._lock.open("a") as probe:
            try:
                fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
