"""The instance id of an operator's state folder, and the lock that shows whether a process has it.

A driver that starts again on the same state folder has the same instance id. It need not wait until the lease of its
former process runs out, because that process is gone: it would still have the lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock

_TRIES, _PAUSE_S = 5, 0.02
"""A look of a command at the lock takes it for a moment."""


def _path(state: Path) -> Path:
    return state / "instance"


@contextmanager
def holding_instance(state: Path, clock: Clock = SYSTEM_CLOCK) -> Iterator[str]:
    """Yield the instance id of the state folder, and lock it while the block runs.

    If another living process has it, or the folder cannot be written, yield a new id: such a driver is an instance of
    its own.
    """
    with suppress(OSError):
        state.mkdir(parents=True, exist_ok=True)
    for _ in range(_TRIES):
        descriptor = _locked(state)
        if descriptor is not None:
            try:
                yield _id_in(descriptor)
            finally:
                os.close(descriptor)
            return
        clock.sleep(_PAUSE_S)
    yield uuid4().hex


def ended_instance(state: Path) -> str | None:
    """Return the instance id of the state folder if no process has it; None if one has it, or there is none."""
    try:
        with _path(state).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return file.read() or None
    except OSError:
        return None


def instance_of(state: Path) -> str | None:
    """Return the instance id of the state folder, whether a process has it or not; None if there is none."""
    try:
        return _path(state).read_text() or None
    except OSError:
        return None


def is_instance_held(state: Path) -> bool:
    """Return whether a process on this machine has the instance of the state folder: a driver that runs or waits."""
    return _path(state).exists() and ended_instance(state) is None


def _locked(state: Path) -> int | None:
    """Return a descriptor of the locked file; None if another process has the lock, or the file cannot be opened."""
    try:
        descriptor = os.open(_path(state), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _id_in(descriptor: int) -> str:
    """Return the id in the locked file, after writing a new one if it has none."""
    found = os.pread(descriptor, 64, 0).decode(errors="replace")
    if not found:
        found = uuid4().hex
        with suppress(OSError):  # a full disk: the id is this process's alone
            os.pwrite(descriptor, found.encode(), 0)
            os.fsync(descriptor)
    return found
