"""A partition's local state in memory-mapped files.

<root>/<operator>/<table id>/<partition>/
        lock             held (flock) by the task that works on the partition
        header           which commit the state equals, see `state.header`
        generation-<n>/  a file per array, and `undo`; `.new` until the header names it

A file grows in place: nothing is copied, and what grew before a crash belongs to a state that is dirty anyway.

A change is framed by `begin` (dirty) and `complete`. That of a batch leaves the rows in `undo` that lead back to the
commit before it: they outlast the process, as the arrays do, and are overwritten by the next batch. A crash between any
two steps leaves a header that is dirty, or one that names an older commit and its untouched generation:
`decisions.choose_state` treats both rightly. Local Linux file systems only: it needs flock, posix_fallocate and shared
mappings.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import EngineError, Superseded
from tidegate.contracts.operator import SEED, Array, Layout
from tidegate.state import disk
from tidegate.state.decisions import NO_COMMIT, Commit, Header, may_take
from tidegate.state.local import undo_rows
from tidegate.state.local.header import HeaderFile

LOCK_TIMEOUT_S = 30.0
_LOCK_PAUSE_S = 0.002
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The id of the machine's present run: after another one, what was not synced may be lost."""
    return _BOOT_ID.read_text().strip()


def tables_here(root: Path, operator: str) -> list[str]:
    """The table ids of the logs that the operator has had local states of on this machine."""
    return sorted({header.parent.parent.name for header in (root / operator).glob("*/*/header")})


def partitions_here(root: Path, operator: str, table_id: str) -> list[int]:
    """The partitions that have a local state on this machine."""
    folder = root / operator / table_id
    return sorted(int(entry.name) for entry in folder.iterdir()) if folder.is_dir() else []


def seed_of(table_id: str) -> bytes:
    """Return the seed of a log's states: the same on every machine and after every rebuild.

    Delta draws the table id at random when the log is made, so producers cannot know it (decision 0023).
    """
    return hashlib.blake2b(table_id.encode(), digest_size=SEED.factor * np.dtype(SEED.dtype).itemsize).digest()


class LocalState:
    """One partition's local state, held under its lock."""

    def __init__(self, folder: Path, table_id: str, descriptor: int | None = None) -> None:
        self.folder = folder
        self.table_id = table_id
        self.header: Header | None = None
        self._file = HeaderFile(folder / "header", descriptor)
        self._storage: MappedStorage | None = None
        self._begun_from: Commit | None = None
        self._held = -1

    @classmethod
    @contextmanager
    def lock(
        cls,
        root: Path,
        partition: int,
        *,
        operator: str,
        table_id: str,
        token: tuple[int, int],
        timeout_s: float = LOCK_TIMEOUT_S,
    ) -> Iterator[LocalState]:
        """The partition's state, held by this task alone; `token` is its (epoch, batch).

        Superseded, with nothing touched, if a newer attempt had it. EngineError if another task holds it too long.
        """
        folder = root / operator / table_id / str(partition)
        with _opened(folder) as descriptor, _flock(folder / "lock", descriptor, timeout_s) as held:
            local = cls(folder, table_id, descriptor)
            local._held = held
            with disk.disk_errors(folder):
                local.header = local._file.read()
            may_take(local.header, token)
            if local.header is not None and not local._generation(local.header.generation).exists():
                local.header = None
            yield local

    def fits(self, layout: Layout) -> bool:
        """True when the generation that the header names has every array of the layout in full."""
        if self.header is None:
            return False
        folder = self._generation(self.header.generation)
        return all(_has(folder / name, size) for name, size in _sizes(layout, self.header.capacity).items())

    def storage(self, layout: Layout) -> MappedStorage:
        """The arrays of the generation that the header names, as the last task left them."""
        if self._storage is None:
            if self.header is None:
                raise AssertionError("there is no local state; rebuild it")
            folder = self._generation(self.header.generation)
            self._storage = MappedStorage(self, folder, layout, self.header.capacity, self.header.generation)
        return self._storage

    def has_its_seed(self, storage: MappedStorage) -> bool:
        """True unless the arrays have a seed, and it is not the log's: keys would no longer be found."""
        seed = storage.arrays().get(SEED.name)
        return seed is None or seed.tobytes() == seed_of(self.table_id)

    def rebuild(self, layout: Layout) -> MappedStorage:
        """New arrays, zero but for the log's seed; the generation before stays as it is until `complete` switches."""
        generation = 1 + max((number for number, _ in self._generations()), default=0)
        folder = self._generation(generation, new=True)
        with disk.disk_errors(folder):
            self._remove_generations_but(self.header.generation if self.header else 0)
            folder.mkdir()
        self._storage = MappedStorage(self, folder, layout, layout.capacity, generation)
        if SEED in layout.arrays:
            self._storage.arrays()[SEED.name][:] = np.frombuffer(seed_of(self.table_id), SEED.dtype)
        return self._storage

    def begin(self, epoch: int, batch: int, attempt: str) -> None:
        """The header says that a change is under way; the arrays may be changed from here on.

        Superseded if the folder was removed since the lock was taken: what is at its place now is somebody else's.
        """
        self.require_own()
        was_durable = self.header is not None and self.header.durable
        before = self.header or Header(
            table_id=self.table_id,
            epoch=epoch,
            batch=NO_COMMIT[0],
            attempt=NO_COMMIT[1],
            boot_id="",
            complete=False,
            durable=False,
            generation=0,
            layout=("", 0),
            capacity={},
        )
        self._begun_from = (before.batch, before.attempt) if before.complete else None
        self.header = replace(
            before,
            epoch=epoch,
            batch=batch,
            attempt=attempt,
            boot_id=boot_id(),
            complete=False,
            durable=False,
            before=None,
        )
        self._write(synced=False)
        if was_durable:  # a durable header must not come back from the other slot after a loss of power
            self._write(synced=True)

    def complete(self, undo: pa.Table | None = None) -> None:
        """Write that the arrays equal the commit that `begin` named; older generations are gone.

        `undo`: the rows that lead back to the commit that the arrays equalled before.
        """
        self.require_own()
        if self.header is None or self.header.complete:
            raise AssertionError("complete without begin")
        if self._storage is not None:
            self._switch(self._storage)
        if undo is not None:
            with disk.disk_errors(self.folder):
                undo_rows.write(self._undo_file(self.header), undo, (self.header.batch, self.header.attempt))
        self.header = replace(self.header, complete=True, before=None if undo is None else self._begun_from)
        self._write(synced=False)
        self.require_own()
        with disk.disk_errors(self.folder):
            self._remove_generations_but(self.header.generation)

    def undo(self) -> pa.Table | None:
        """Return the rows that lead back to the commit that the header calls `before`; None if they are damaged."""
        if self.header is None or self.header.before is None:
            raise AssertionError("the header names no commit to go back to")
        return undo_rows.read(self._undo_file(self.header), (self.header.batch, self.header.attempt))

    def _undo_file(self, header: Header) -> Path:
        return self._generation(header.generation) / "undo"

    @property
    def trusted(self) -> bool:
        """True for a complete state whose pages are all there: none was lost with the memory of an earlier boot."""
        header = self.header
        return header is not None and header.complete and (header.durable or header.boot_id == boot_id())

    def make_durable(self) -> None:
        """The state survives a loss of power; for a drain. Only a trusted state can be made durable."""
        if self.header is None or not self.trusted:
            raise AssertionError("only a state that can be trusted can be made durable")
        with disk.disk_errors(self.folder):
            folder = self._generation(self.header.generation)
            for path in (*folder.iterdir(), folder, self.folder):
                disk.sync(path)  # on Linux this writes what shared mappings changed, too
        self.header = replace(self.header, durable=True)
        self._write(synced=True)

    def _switch(self, storage: MappedStorage) -> None:
        if self.header is None:
            raise AssertionError("a switch without begin")
        if storage.generation != self.header.generation:
            with disk.disk_errors(self.folder):
                storage.folder = storage.folder.rename(self._generation(storage.generation))
        layout = (storage.layout.kind, storage.layout.version)
        self.header = replace(
            self.header, generation=storage.generation, layout=layout, capacity=dict(storage.capacity())
        )

    def _write(self, *, synced: bool) -> None:
        if self.header is None:
            raise AssertionError("there is no header to write")
        with disk.disk_errors(self.folder):
            self._file.write(self.header, synced=synced)

    def require_own(self) -> None:
        """Nothing, if the lock that is held is the one at its place; Superseded if the folder was removed since."""
        if _inode(self.folder / "lock") != _identity(os.fstat(self._held)):
            raise Superseded(
                "the local state was removed while this task worked on it; it changes nothing more",
                value=self.folder,
                remedy="none is needed: the next attempt begins with what is there now",
            )

    def _generation(self, number: int, *, new: bool = False) -> Path:
        return self.folder / f"generation-{number}{'.new' if new else ''}"

    def _generations(self) -> list[tuple[int, Path]]:
        return [(int(path.stem.partition("-")[2]), path) for path in self.folder.glob("generation-*")]

    def _remove_generations_but(self, kept: int) -> None:
        for number, path in self._generations():
            if number != kept:
                _remove(path)


class MappedStorage:
    """Flat arrays over the mapped files of a generation; implements `contracts.operator.Storage`.

    Their space is reserved before it is mapped: a mapped file on a full disk would end in a bus error.
    """

    def __init__(
        self, owner: LocalState, folder: Path, layout: Layout, capacity: Mapping[str, int], generation: int
    ) -> None:
        self._owner = owner
        self.layout = layout
        self.generation = generation
        self.folder = folder
        self._capacity = dict(capacity)
        self._arrays = self._mapped()

    def arrays(self) -> Mapping[str, Array]:
        """The arrays; those fetched before a growth are stale."""
        return self._arrays

    def capacity(self) -> Mapping[str, int]:
        """The capacity of each dimension."""
        return self._capacity

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Every dimension named has at least that capacity; the files are longer, what they held is where it was.

        Superseded if the folder was removed meanwhile: files of the same names would be those of somebody else.
        """
        self._owner.require_own()
        self._capacity = {name: max(size, capacity.get(name, 0)) for name, size in self._capacity.items()}
        self._arrays = self._mapped()

    def _mapped(self) -> dict[str, Array]:
        sizes = _sizes(self.layout, self._capacity)
        with disk.disk_errors(self.folder):
            state = str(self.folder.parent)
            mappings = {name: _map((state, name), self.folder / name, size) for name, size in sizes.items()}
        return {spec.name: np.frombuffer(mappings[spec.name], spec.dtype) for spec in self.layout.arrays}


def _sizes(layout: Layout, capacity: Mapping[str, int]) -> dict[str, int]:
    """The bytes of each array."""
    return {spec.name: spec.factor * capacity[spec.dimension] * np.dtype(spec.dtype).itemsize for spec in layout.arrays}


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove(generation: Path) -> None:
    if generation.is_dir():
        for path in generation.iterdir():
            path.unlink()
        generation.rmdir()
    else:  # one file, as layouts before had it
        generation.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Kept:
    """A mapping and the file it belongs to: the mapping keeps the inode from being used for another file."""

    inode: tuple[int, int]
    mapping: mmap.mmap


KEPT = 256
"""Mappings that a process keeps: each has a file descriptor, of which a process often has no more than 1,024."""

_KEPT: dict[tuple[str, str], _Kept] = {}
"""This process's mappings by state folder and array: mapping anew costs a page fault per page that a batch touches."""

_KEEPING = Lock()


def _map(place: tuple[str, str], path: Path, size: int) -> mmap.mmap:
    """The mapping of the file, which has that size at least; kept from before if it is of the very same bytes."""
    with _KEEPING:
        kept = _KEPT.pop(place, None)
    if kept is None or len(kept.mapping) != size or kept.inode != _inode(path):
        kept = _mapped_file(path, size)
    with _KEEPING:
        _KEPT[place] = kept
        for oldest in list(_KEPT)[:-KEPT]:
            del _KEPT[oldest]
    return kept.mapping


def _mapped_file(path: Path, size: int) -> _Kept:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        status = os.fstat(descriptor)
        if status.st_size < size:
            os.posix_fallocate(descriptor, status.st_size, size - status.st_size)
        return _Kept((status.st_dev, status.st_ino), mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return _identity(status)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Give the folder's descriptor, which stays that of this very folder whatever happens to its name."""
    with disk.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _flock(path: Path, folder: int, timeout_s: float) -> Iterator[int]:
    """The lock is held; the file itself means nothing and is never removed by Tidegate. Gives its descriptor."""
    with disk.disk_errors(path):
        descriptor = os.open(path.name, os.O_RDWR | os.O_CREAT, 0o644, dir_fd=folder)
    try:
        _wait_for_lock(descriptor, path, time.monotonic() + timeout_s)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise EngineError(
                    "another task holds the partition's local state",
                    value=path,
                    remedy="a task of a failed attempt still runs; the driver tries again",
                ) from None
            time.sleep(_LOCK_PAUSE_S)
