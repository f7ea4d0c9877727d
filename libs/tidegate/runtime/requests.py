"""How a command asks the running driver of an operator to do something. May import: the standard library, contracts.

A request is a file in the operator's state folder, with what is asked for where that needs telling; the driver removes
it when it is done, or has left beside it why it will not be. A lock file tells whether a driver runs on this machine.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TextIO, get_args

from tidegate.contracts.errors import EngineError, UserError

Request = Literal["apply", "compact", "flush"]


class Requests:
    """The requests of one operator."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "requests"
        self._lock = state / "driver.lock"
        self._held: TextIO | None = None

    def pending(self) -> list[Request]:
        """The requests that wait, in alphabetical order."""
        return [request for request in get_args(Request) if (self._folder / request).exists()]

    def content(self, request: Request) -> str:
        """What was said with the request."""
        return (self._folder / request).read_text()

    def done(self, request: Request) -> None:
        """The request no longer waits."""
        (self._folder / request).unlink(missing_ok=True)

    def refuse(self, request: Request, why: str) -> None:
        """The request will not be done: who asked is told why, as soon as it no longer waits."""
        with suppress(OSError):  # a full disk must not stop a driver
            _put(self._refusal(request), why)

    def ask(self, request: Request, timeout_s: float, content: str = "") -> None:
        """The running driver has done it; `content`: what is said with the request.

        Raises UserError with the driver's reason when it has refused, EngineError when it has not within the time.
        """
        path = self._folder / request
        self._folder.mkdir(parents=True, exist_ok=True)
        self._refusal(request).unlink(missing_ok=True)  # of somebody who did not wait for it
        _put(path, content)
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
        self._raise_refusal(request)

    def _refusal(self, request: Request) -> Path:
        return self._folder / f"{request}.refused"

    def _raise_refusal(self, request: Request) -> None:
        """UserError, if the request was refused."""
        path = self._refusal(request)
        if path.exists():
            why = path.read_text()
            path.unlink()
            remedy = "mend that and ask again; the driver goes on as before"
            raise UserError(f"the driver has refused it: {request}", value=why, remedy=remedy)

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Others see that a driver runs here, if this one has the lock; it tries again whenever it calls `drive`."""
        try:
            self.drive()
            yield
        finally:
            self._let_go()

    def drive(self) -> bool:
        """True if this driver has the lock. After a takeover the older one may still have it: Delta fences that one."""
        with suppress(OSError):  # a full disk must not stop a driver, which does not need the lock for itself
            if self._held is not None and _is_file(self._held, self._lock):
                return True
            self._let_go()
            self._held = _locked(self._lock)
        return self._held is not None

    def driven(self) -> bool:
        """True while a driver runs on this machine."""
        try:
            with self._lock.open() as probe:
                fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _put(path: Path, content: str) -> None:
    """The file is there, all of it at once."""
    written = path.with_name(f"{path.name}.new")
    written.write_text(content)
    written.replace(path)


def _locked(path: Path) -> TextIO | None:
    """The file, locked, with this process's id in it; None while another driver has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    except OSError:
        file.close()
        return None
    return file


def _is_file(opened: TextIO, path: Path) -> bool:
    """False when the path is gone or another file: the state folder may be deleted at any time."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False
