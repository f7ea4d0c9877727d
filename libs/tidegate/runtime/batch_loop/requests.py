"""Requests of commands to the running driver of an operator, exchanged as files.

A request is a file with a unique name in the operator's state folder; its content is the argument. The driver renames
it when it is done, or replaces it by a file with the reason for a refusal. So each requester gets its own answer. A
lock file shows whether a driver runs on this machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, TextIO, get_args

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import ConfigurationError, EngineError, TidegateError, UserError

Kind = Literal["apply", "compact", "flush"]


class Request(NamedTuple):
    """One request. Its `id` sorts by the time at which the request was made."""

    id: str
    kind: Kind


class Refusal(NamedTuple):
    """Why a driver has refused a request, as in the file with its answer."""

    problem: str
    value: str | None = None
    remedy: str = ""

    @classmethod
    def from_text(cls, text: str) -> Refusal:
        """Return the refusal that a driver wrote; one of an earlier version that still runs wrote the problem alone."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return cls(text)


class Requests:
    """The requests to the driver of one operator."""

    def __init__(self, state: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._folder = state / "requests"
        self._lock = state / "driver.lock"
        self._held: TextIO | None = None

    # ---- the driver's side

    def pending(self) -> list[Request]:
        """Return the pending requests, oldest first."""
        found = [
            Request(path.stem, kind)
            for kind in get_args(Kind)
            for path in self._folder.glob(f"*.{kind}")  # a missing folder matches nothing
        ]
        return sorted(found)

    def content(self, request: Request) -> str:
        """Return the request's content. Raise OSError if the requester no longer waits."""
        return self._path(request).read_text()

    def done(self, request: Request) -> None:
        """Report to the requester that the request is done."""
        path = self._path(request)
        with suppress(FileNotFoundError):  # refused already, or the requester no longer waits
            path.replace(path.with_suffix(".done"))

    def refuse(self, request: Request, why: TidegateError) -> None:
        """Refuse the request; problem, value and remedy are reported to the requester."""
        path, value = self._path(request), None if why.value is None else str(why.value)
        refusal = Refusal(str(why) if isinstance(why, ConfigurationError) else why.problem, value, why.remedy)
        with suppress(OSError):  # a full disk must not stop a driver
            _put(path.with_suffix(".refused"), json.dumps(refusal._asdict()))
        path.unlink(missing_ok=True)

    # ---- the requester's side

    def put(self, kind: Kind, content: str = "") -> Request:
        """Write a request for the driver and return it; `content` is its argument. Do not wait for an answer."""
        self._folder.mkdir(parents=True, exist_ok=True)
        request = Request(f"{self._clock.now_ms():013d}-{kind}-{secrets.token_hex(8)}", kind)
        _put(self._path(request), content)
        return request

    def ask(self, kind: Kind, timeout_s: float, content: str = "") -> None:
        """Send a request to the running driver and wait until it is done.

        Raise UserError with the driver's reason if it refuses; EngineError if the driver ends or `timeout_s` passes.
        """
        path = self._path(self.put(kind, content))
        deadline = self._clock.monotonic() + timeout_s
        try:
            while path.exists() and self.is_driver_running() and self._clock.monotonic() < deadline:
                self._clock.sleep(0.05)
            if path.with_suffix(".done").exists():
                return
            _raise_refusal(kind, path.with_suffix(".refused"))
            raise EngineError(
                f"the driver has not done it: {kind}",
                value=f"the driver has ended, or did not answer within {timeout_s:.0f} s",
                remedy="see `tidegate status` and the log of the service, then ask again",
            )
        finally:
            for suffix in (f".{kind}", ".done", ".refused"):
                path.with_suffix(suffix).unlink(missing_ok=True)

    def _path(self, request: Request) -> Path:
        return self._folder / f"{request.id}.{request.kind}"

    # ---- the driver's lock

    @contextmanager
    def holding_lock(self) -> Iterator[None]:
        """Show others that a driver runs on this machine, by holding the lock file as long as the block runs.

        If another driver has the lock, each call of `take_lock` tries again to take it.
        """
        try:
            self.take_lock()
            yield
        finally:
            self._release_lock()

    def take_lock(self) -> bool:
        """Take the lock unless this driver has it already; return whether it has it now.

        Taking it deletes all earlier requests. After a takeover the older driver may still hold the lock; that one is
        fenced by its next Delta commit.
        """
        with suppress(OSError):  # a full disk must not stop a driver, which does not need the lock for itself
            if self._held is not None and _is_file(self._held, self._lock):
                return True
            self._release_lock()
            self._held = _locked(self._lock)
            if self._held is not None:  # whoever still waits for a driver that has ended gets an error
                for path in self._folder.glob("*"):
                    path.unlink(missing_ok=True)
        return self._held is not None

    def is_driver_running(self) -> bool:
        """Return whether a driver holds the lock on this machine."""
        try:
            with self._lock.open() as probe:
                fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _release_lock(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _raise_refusal(kind: Kind, path: Path) -> None:
    """Raise UserError if the request was refused."""
    with suppress(FileNotFoundError):
        refusal = Refusal.from_text(path.read_text())
        why = refusal.problem if refusal.value is None else f"{refusal.problem}: {refusal.value}"
        remedy = refusal.remedy or "fix the cause and repeat the request; the driver continues as before"
        raise UserError(f"the driver has refused it: {kind}", value=" ".join(why.split()), remedy=remedy)


def _put(path: Path, content: str) -> None:
    """Write the file atomically."""
    written = path.with_name(f"{path.name}.new")
    written.write_text(content)
    written.replace(path)


def _locked(path: Path) -> TextIO | None:
    """Lock the file, write this process's id into it, and return it; None if another driver holds the lock."""
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
    """Return whether the path still is the opened file: the state folder may be deleted at any time."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False
