"""The machine of a local state, as a task reaches it: the disk, as far as a loss of power or a full disk matters."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from tidegate.state import disk

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Machine(Protocol):
    """The machine that a task runs on. It travels to tasks, so it has to be picklable."""

    def boot_id(self) -> str:
        """Return the machine's boot id. If it has changed, data that was not synced may be lost."""
        ...

    def reserve(self, descriptor: int, offset: int, length: int) -> None:
        """Allocate disk space for these bytes of the open file. Raise OSError if the disk is full."""
        ...

    def sync(self, path: Path) -> None:
        """Call fsync on a file, or on a folder so that its entries survive a loss of power."""
        ...

    def write(self, path: Path, data: bytes, offset: int, *, folder: int | None, synced: bool) -> None:
        """Write the data at that offset of the file; with `synced`, fsync it.

        `folder` is the file descriptor of the file's folder, to which the write goes even if another folder has taken
        its name meanwhile; None: whichever folder has the name.
        """
        ...


@dataclass(frozen=True)
class ThisMachine:
    """The machine that this process runs on."""

    def boot_id(self) -> str:
        """Return the machine's boot id. If it has changed, data that was not synced may be lost."""
        return _boot_id()

    def reserve(self, descriptor: int, offset: int, length: int) -> None:
        """Allocate disk space for these bytes of the open file. Raise OSError if the disk is full."""
        os.posix_fallocate(descriptor, offset, length)

    def sync(self, path: Path) -> None:
        """Call fsync on a file, or on a folder so that its entries survive a loss of power."""
        disk.sync(path)

    def write(self, path: Path, data: bytes, offset: int, *, folder: int | None, synced: bool) -> None:
        """Write the data at that offset of the file in that folder; with `synced`, fsync it."""
        # rule: header-in-locked-folder
        name = path if folder is None else path.name
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o644, dir_fd=folder)
        try:
            os.pwrite(descriptor, data, offset)
            if synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


@cache
def _boot_id() -> str:
    """Read the boot id, which stays the same as long as this process lives."""
    return _BOOT_ID.read_text().strip()


THIS_MACHINE = ThisMachine()
