"""How a command asks the running driver of an operator to do something.

A request is a file in the operator's state folder, with a name of its own and what is asked for in it. The driver
renames it when it is done, or removes it and says why it will not be; so every asker has its own answer. A lock file
tells whether a driver runs on this machine.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, TextIO, get_args

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime import clock

Kind = Literal["apply", "compact", "flush"]


class Request(NamedTuple):
    """One request of one asker. `id` sorts by the time of asking."""

    id: str
    kind: Kind


class Requests:
    """The requests of one operator."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "requests"
        self._lock = state / "driver.lock"
        self._held: TextIO | None = None

    # ---- the driver's side

    def pending(self) -> list[Request]:
        """Return the requests that wait, in the order in which they were made."""
        found = [
            Request(path.stem, kind)
            for kind in get_args(Kind)
            for path in self._folder.glob(f"*.{kind}")  # no folder, no match
        ]
        return sorted(found)

    def content(self, request: Request) -> str:
        """Return what was said with the request. OSError if its asker waits no longer."""
        return self._path(request).read_text()

    def done(self, request: Request) -> None:
        """Tell the asker that it is done."""
        path = self._path(request)
        with suppress(FileNotFoundError):  # it was refused, or its asker waits no longer
            path.replace(path.with_suffix(".done"))

    def refuse(self, request: Request, why: str) -> None:
        """Tell the asker why it will not be done."""
        path = self._path(request)
        with suppress(OSError):  # a full disk must not stop a driver
            _put(path.with_suffix(".refused"), why)
        path.unlink(missing_ok=True)

    # ---- the asker's side

    def put(self, kind: Kind, content: str = "") -> Request:
        """Leave a request for the driver; `content` says what is asked for."""
        self._folder.mkdir(parents=True, exist_ok=True)
        request = Request(f"{clock.now_ms():013d}-{kind}-{secrets.token_hex(8)}", kind)
        _put(self._path(request), content)
        return request

    def ask(self, kind: Kind, timeout_s: float, content: str = "") -> None:
        """Have the running driver do it, and wait until it is done.

        Raises UserError with the driver's reason when it refuses, EngineError when it does not do it within the time.
        """
        path = self._path(self.put(kind, content))
        deadline = time.monotonic() + timeout_s
        try:
            while path.exists() and self.driven() and time.monotonic() < deadline:
                time.sleep(0.05)
            if path.with_suffix(".done").exists():
                return
            _raise_refusal(kind, path.with_suffix(".refused"))
            raise EngineError(
                f"the driver has not done it: {kind}",
                value=f"it has ended, or did not come to it within {timeout_s:.0f} s",
                remedy="see `tidegate status` and the log of the service, then ask again",
            )
        finally:
            for suffix in (f".{kind}", ".done", ".refused"):
                path.with_suffix(suffix).unlink(missing_ok=True)

    def _path(self, request: Request) -> Path:
        return self._folder / f"{request.id}.{request.kind}"

    # ---- who drives

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Others see that a driver runs here, if this one has the lock; it tries again whenever it calls `drive`."""
        try:
            self.drive()
            yield
        finally:
            self._let_go()

    def drive(self) -> bool:
        """Take the lock, if this driver does not have it, and clear what was asked before; False if another has it.

        After a takeover the older driver may still have it: Delta fences that one.
        """
        with suppress(OSError):  # a full disk must not stop a driver, which does not need the lock for itself
            if self._held is not None and _is_file(self._held, self._lock):
                return True
            self._let_go()
            self._held = _locked(self._lock)
            if self._held is not None:  # whoever asks a driver that has ended is told so, if it still waits
                for path in self._folder.glob("*"):
                    path.unlink(missing_ok=True)
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


def _raise_refusal(kind: Kind, path: Path) -> None:
    """Raise UserError if the request was refused."""
    with suppress(FileNotFoundError):
        why = path.read_text()
        remedy = "mend that and ask again; the driver goes on as before"
        raise UserError(f"the driver has refused it: {kind}", value=why, remedy=remedy)


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
