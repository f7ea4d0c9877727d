"""A place of the lake that is a folder of a mounted file system.

An object is written as a whole to a new file, synced to disk, and then linked or renamed to its name; the folder is
synced before the call returns. So an object that anybody can see is complete, and survives a loss of power. Only what
nothing names yet gets its name first: file and folder are then synced at the same time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from tidegate.contracts.errors import Unavailable, UserError
from tidegate.state import disk
from tidegate.state.lake.keys import checked
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Listed

STAGING = "_tidegate"
"""Folder of files while they are written; Delta ignores it, as it does all names that begin with an underscore."""

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True)
class PosixLake:
    """The files below one folder. It holds no open file, so that it can be pickled and copied freely.

    Folders below the place are created as needed, but the place itself never is (see `make_place`): without it, a write
    raises Unavailable, because the lake is not mounted.
    """

    place: Place

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the file durably unless there is one; see `Lake.put_if_absent`.

        Raise UserError if the file system has no hard links.
        """
        path = self._path(key)
        with disk.disk_errors(path):
            self._require_place()
            disk.make_folder(path.parent, synced=True)
            with disk.staged(self._path(STAGING), data) as file:
                try:
                    # rule: entry-never-replaced
                    os.link(file, path)
                except FileExistsError:
                    if path.read_bytes() != data:
                        return False
                except OSError as error:
                    if error.errno in _NO_HARD_LINKS:
                        raise self._has_no_hard_links(error) from error
                    raise
            # rule: entry-synced
            disk.sync(path.parent)
        return True

    def _has_no_hard_links(self, error: OSError) -> UserError:
        return UserError(
            "the file system of the lake has no hard links, which make a commit atomic",
            value=f"{self.place}: {error.strerror}",
            remedy="name a folder of a disk or of NFS as `lake`, or the object store itself by its url, not a mount "
            "of it",
        )

    def put(self, key: str, data: bytes) -> str:
        """Write or replace the file durably and return its ETag; see `Lake.put`."""
        path = self._path(key)
        with disk.disk_errors(path):
            self._require_place()
            disk.make_folder(path.parent, synced=True)
            with disk.staged(self._path(STAGING), data) as file:
                written = _etag(file.stat())
                file.replace(path)
            # rule: entry-synced
            disk.sync(path.parent)
        return written

    def put_unnamed(self, key: str, data: bytes) -> None:
        """Write the file durably; see `Lake.put_unnamed`."""
        path = self._path(key)
        with disk.disk_errors(path):
            self._require_place()
            disk.make_folder(path.parent, synced=True)
            with disk.staged(self._path(STAGING), data, synced=False) as file:
                file.replace(path)
            # rule: data-files-synced
            disk.sync_together(path, path.parent)

    def make_place(self) -> None:
        """Create the folder durably, unless it is there: a log begins."""
        with disk.disk_errors(self.place.folder):
            disk.make_folder(self.place.folder, synced=True)

    def _require_place(self) -> None:
        # rule: lake-away-writes-nothing
        if not self.place.folder.is_dir():
            raise Unavailable(
                "the lake is unavailable", value=self.place, remedy="mount it again, or restore the folder"
            )

    def get(self, key: str) -> bytes | None:
        """Return the file's content; None if there is no such file."""
        path = self._path(key)
        with disk.disk_errors(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of the file from `start`; None if there is no such file."""
        path = self._path(key)
        with disk.disk_errors(path):
            try:
                with path.open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), length, start)
            except FileNotFoundError:
                return None

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Yield the files below the folder `prefix`, at any depth, with keys above `after`, in the order of keys."""
        folder = self._path(prefix) if prefix else self.place.folder
        with disk.disk_errors(folder):
            keys = sorted(key for key in _keys(folder, prefix) if key > after)
        for key in keys:
            with disk.disk_errors(self._path(key)):
                try:
                    found = self._path(key).stat()
                except FileNotFoundError:
                    continue
            yield Listed(key, found.st_size, _etag(found), found.st_mtime_ns // 1_000_000)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the files; those that do not exist are ignored."""
        for key in keys:
            with disk.disk_errors(self._path(key)):
                self._path(key).unlink(missing_ok=True)

    def etag(self, key: str) -> str | None:
        """Return the file's time and size, which differ once another file was put in its place; None if none is."""
        with disk.disk_errors(self._path(key)):
            try:
                return _etag(self._path(key).stat())
            except FileNotFoundError:
                return None

    def files(self, sizes: Mapping[str, int]) -> fs.FileSystem:
        """Return the folder as a file system, which Arrow reads without Python between; its errors are OSErrors."""
        return fs.SubTreeFileSystem(str(self.place.folder), fs.LocalFileSystem())

    def _path(self, key: str) -> Path:
        return self.place.folder / checked(key)


def _etag(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns:x}-{found.st_size:x}"


def _keys(folder: Path, key: str) -> Iterator[str]:
    """Yield the keys of the files below the folder, whose own key is `key`; none if there is no such folder."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            below = f"{key}/{entry.name}" if key else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _keys(Path(entry.path), below)
            else:
                yield below
