"""What the state asks of a disk: durability, and clear errors."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.contracts.errors import EngineError, Unavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)


def sync(path: Path) -> None:
    """The file's bytes, or the folder's entries, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, synced: bool) -> None:
    """The folder and those above it exist; with `synced`, the entries of new ones survive a loss of power."""
    if folder.is_dir():
        return
    make_folder(folder.parent, synced=synced)
    folder.mkdir(exist_ok=True)
    if synced:
        sync(folder.parent)


@contextmanager
def staged(folder: Path, data: bytes) -> Iterator[Path]:
    """A file in the folder, of a name of its own, has the data on disk; it is gone afterwards under that name."""
    make_folder(folder, synced=False)
    path = folder / secrets.token_hex(8)
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the operating system refuses inside is Unavailable and names the path; a full disk is named as such.

    A missing file is a plain EngineError: no waiting brings it back.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Unavailable(
                "disk full", value=path, remedy="free space there, or move it to a larger disk"
            ) from error
        kind = EngineError if error.errno == errno.ENOENT else Unavailable
        raise kind(f"the disk failed: {error.strerror}", value=path, remedy="look at the disk") from error
