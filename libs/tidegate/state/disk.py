"""Sync files and folders to disk, and turn errors of the operating system into Tidegate's errors."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tidegate.contracts.errors import EngineError, Unavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)


def sync(path: Path) -> None:
    """Call fsync on a file, or on a folder so that its entries survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_together(first: Path, second: Path) -> None:
    """Call fsync on both at the same time: a disk takes hardly longer for both than for one."""
    with ThreadPoolExecutor(1) as other:
        done = other.submit(sync, second)
        sync(first)
        done.result()


def make_folder(folder: Path, *, synced: bool) -> None:
    """Create the folder and its parents; with `synced`, fsync the parent of each folder that was created."""
    if folder.is_dir():
        return
    make_folder(folder.parent, synced=synced)
    folder.mkdir(exist_ok=True)
    if synced:
        sync(folder.parent)


@contextmanager
def staged(folder: Path, data: bytes, *, synced: bool = True) -> Iterator[Path]:
    """Write the data to a new file with a random name in the folder, fsync it if `synced`, and yield its path.

    Delete that name at exit; a hard link made of the file, or a file renamed to another name, stays.
    """
    make_folder(folder, synced=False)
    path = folder / secrets.token_hex(8)
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            if synced:
                # rule: entry-synced
                os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: object) -> Iterator[None]:
    """Turn an OSError inside the block into Unavailable with the path; a full disk gets its own message.

    A missing file becomes a plain EngineError, because waiting does not bring it back.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Unavailable(
                "disk full", value=path, remedy="free space there, or move it to a larger disk"
            ) from error
        kind = EngineError if error.errno == errno.ENOENT else Unavailable
        raise kind(f"the disk failed: {error.strerror}", value=path, remedy="check the disk") from error
