"""Keep a partition's local state in memory-mapped files.

<root>/<operator>/<table id>/<partition>/
        lock             held (flock) by the task that works on the partition
        header           the commit that the state equals, see `state.local.header`
        generation-<n>/  one file per array, and `undo`; named `.new` while it is made

A file grows in place, so nothing is copied. If a process crashes after a growth, the header is dirty and the state is
rebuilt anyway.

A change begins with `begin`, which writes a dirty header, and ends with `complete`. A batch leaves rows in `undo` that
lead back to the commit before it. Like the arrays, they survive the process; the next batch overwrites them. A crash
between any two steps leaves either a dirty header, or a header that names an older commit and its unchanged generation.
`protocol_decisions.choose_state` handles both.

Only local Linux file systems are supported: flock, posix_fallocate and shared mappings are needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import EngineError, Superseded
from tidegate.contracts.operator import SEED, Array, Layout
from tidegate.state import disk
from tidegate.state.local import undo_file
from tidegate.state.local.header import HeaderFile
from tidegate.state.local.machine import THIS_MACHINE, Machine
from tidegate.state.protocol_decisions import NO_COMMIT, Commit, Header, check_not_superseded

LOCK_TIMEOUT_S = 30.0
_LOCK_PAUSE_S = 0.002


def tables_here(root: Path, operator: str) -> list[str]:
    """Return the table ids of the logs of which the operator has local states on this machine."""
    return sorted({header.parent.parent.name for header in (root / operator).glob("*/*/header")})


def partitions_here(root: Path, operator: str, table_id: str) -> list[int]:
    """Return the partitions that have a local state on this machine, ascending."""
    folder = root / operator / table_id
    return sorted(int(entry.name) for entry in folder.iterdir()) if folder.is_dir() else []


def seed_of(table_id: str) -> bytes:
    """Return the seed of the key hash for a log's states; it is the same on every machine and after every rebuild.

    It is derived from the table id, which Delta chooses at random when the log is created. Producers do not know it and
    so cannot choose keys that collide (decision 0023).
    """
    return hashlib.blake2b(table_id.encode(), digest_size=SEED.factor * np.dtype(SEED.dtype).itemsize).digest()


class LocalState:
    """The local state of one partition; this task holds its lock."""

    def __init__(
        self, folder: Path, table_id: str, descriptor: int | None = None, machine: Machine = THIS_MACHINE
    ) -> None:
        self.folder, self.machine = folder, machine
        self.table_id = table_id
        self.header: Header | None = None
        self._file = HeaderFile(folder / "header", descriptor, machine)
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
        machine: Machine = THIS_MACHINE,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Iterator[LocalState]:
        """Lock the partition's state for this task and yield it; `token` is the task's (epoch, batch).

        Raise Superseded, with nothing changed, if a newer attempt has used the state. Raise EngineError if another task
        still holds the lock after `timeout_s`.
        """
        folder = root / operator / table_id / str(partition)
        with _opened(folder) as descriptor, _flock(folder / "lock", descriptor, timeout_s, clock) as held:
            local = cls(folder, table_id, descriptor, machine)
            local._held = held
            with disk.disk_errors(folder):
                local.header = local._file.read()
            # rule: superseded-task/lock
            check_not_superseded(local.header, token)
            if local.header is not None and not local._generation(local.header.generation).exists():
                local.header = None
            yield local

    def fits(self, layout: Layout) -> bool:
        """Return True if the generation that the header names has a file of full size for every array of the layout."""
        if self.header is None:
            return False
        folder = self._generation(self.header.generation)
        return all(_has(f"{folder}/{name}", size) for name, size in _sizes(layout, self.header.capacity).items())

    def storage(self, layout: Layout) -> MappedStorage:
        """Return the arrays of the generation that `rebuild` made, or else of the one that the header names."""
        if self._storage is None:
            if self.header is None:
                raise AssertionError("there is no local state; rebuild it")
            folder = self._generation(self.header.generation)
            self._storage = MappedStorage(self, folder, layout, self.header.capacity, self.header.generation)
        return self._storage

    def has_its_seed(self, storage: MappedStorage) -> bool:
        """Return True if the arrays have the log's seed or none; with another seed, keys would not be found."""
        seed = storage.arrays().get(SEED.name)
        return seed is None or seed.tobytes() == seed_of(self.table_id)

    def rebuild(self, layout: Layout) -> MappedStorage:
        """Create new arrays, all zero except for the log's seed, in a new generation.

        The generation that the header names stays unchanged until `complete` switches to the new one.
        """
        # rule: never-in-place/new
        generation = 1 + max((number for number, _ in self._generations()), default=0)
        # rule: generation-renamed
        folder = self._generation(generation, new=True)
        with disk.disk_errors(folder):
            # rule: never-in-place/kept
            self._remove_generations_but(self.header.generation if self.header else 0)
            folder.mkdir()
        self._storage = MappedStorage(self, folder, layout, layout.capacity, generation)
        if SEED in layout.arrays:
            # rule: seed-of-log
            self._storage.arrays()[SEED.name][:] = np.frombuffer(seed_of(self.table_id), SEED.dtype)
        return self._storage

    def begin(self, epoch: int, batch: int, attempt: str) -> None:
        """Write a dirty header; the arrays may be changed from here on.

        Raise Superseded if the folder was removed since the lock was taken; a folder of that name now belongs to
        another task.
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
            boot_id=self.machine.boot_id(),
            complete=False,
            durable=False,
            before=None,
        )
        self._write(synced=False)
        # rule: dirty-both-slots
        if was_durable:  # a durable header must not come back from the other slot after a loss of power
            self._write(synced=True)

    def complete(self, undo: pa.Table | None = None) -> None:
        """Write a header that says that the arrays equal the commit given to `begin`; delete other generations.

        `undo` has the rows that lead back to the commit that the arrays equalled before. Raise Superseded if the folder
        was removed meanwhile.
        """
        self.require_own()
        if self.header is None or self.header.complete:
            raise AssertionError("complete without begin")
        if self._storage is not None:
            self._switch(self._storage)
        if undo is not None:
            with disk.disk_errors(self.folder):
                undo_file.write(self._undo_file(self.header), undo, (self.header.batch, self.header.attempt))
        # rule: undo-of-batch-only
        self.header = replace(self.header, complete=True, before=None if undo is None else self._begun_from)
        self._write(synced=False)
        self.require_own()
        with disk.disk_errors(self.folder):
            self._remove_generations_but(self.header.generation)

    def undo(self) -> pa.Table | None:
        """Return the rows that lead back to the header's commit `before`; None if they are missing or damaged."""
        if self.header is None or self.header.before is None:
            raise AssertionError("the header names no commit to go back to")
        return undo_file.read(self._undo_file(self.header), (self.header.batch, self.header.attempt))

    def _undo_file(self, header: Header) -> Path:
        return self._generation(header.generation) / "undo"

    @property
    def trusted(self) -> bool:
        """Return True if the state is complete and no page of it was lost: it is durable, or written since the boot."""
        header = self.header
        # rule: torn-never-durable
        return header is not None and header.complete and (header.durable or header.boot_id == self.machine.boot_id())

    def make_durable(self) -> None:
        """Sync the arrays to disk and mark the state as durable, for a drain. The state must be trusted."""
        if self.header is None or not self.trusted:
            raise AssertionError("only a state that can be trusted can be made durable")
        with disk.disk_errors(self.folder):
            folder = self._generation(self.header.generation)
            for path in (*folder.iterdir(), folder, self.folder):
                # rule: synced-before-durable
                self.machine.sync(path)  # on Linux this writes what shared mappings changed, too
        self.header = replace(self.header, durable=True)
        self._write(synced=True)

    def drop(self) -> None:
        """Remove the state; the next task rebuilds it from the log. The lock file stays."""
        self.require_own()
        with disk.disk_errors(self.folder):
            (self.folder / "header").unlink(missing_ok=True)
            self._remove_generations_but(0)
        self.header = None

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
        """Raise Superseded if the folder was removed: the lock file at its path is not the one that this task holds."""
        if _inode(f"{self.folder}/lock") != _identity(os.fstat(self._held)):
            raise Superseded(
                "the local state was removed while this task worked on it; it changes nothing more",
                value=self.folder,
                remedy="do nothing: the next attempt starts with the current state",
            )

    def _generation(self, number: int, *, new: bool = False) -> Path:
        return self.folder / f"generation-{number}{'.new' if new else ''}"

    def _generations(self) -> list[tuple[int, Path]]:
        names = os.listdir(self.folder)  # noqa: PTH208 (a Path for each would cost more than the call)
        found = [name for name in names if name.startswith("generation-")]
        return [(int(name.partition("-")[2].partition(".")[0]), self.folder / name) for name in found]

    def _remove_generations_but(self, kept: int) -> None:
        for number, path in self._generations():
            if number != kept:
                _remove(path)


class MappedStorage:
    """The arrays in the mapped files of a generation; implements `contracts.operator.Storage`.

    Disk space is allocated before a file is mapped, because writing to a mapping on a full disk ends in a bus error.
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
        """Return the arrays by name. Arrays fetched before a call to `grow` are stale."""
        return self._arrays

    def capacity(self) -> Mapping[str, int]:
        """Return the capacity of each dimension, in items."""
        return self._capacity

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Grow each dimension named to at least that capacity; the files grow at the end and keep their contents.

        Raise Superseded if the folder was removed meanwhile; files of the same names would belong to another task.
        """
        self._owner.require_own()
        self._capacity = {name: max(size, capacity.get(name, 0)) for name, size in self._capacity.items()}
        self._arrays = self._mapped()

    def _mapped(self) -> dict[str, Array]:
        sizes = _sizes(self.layout, self._capacity)
        with disk.disk_errors(self.folder):
            state = str(self.folder.parent)
            machine = self._owner.machine
            paths = {name: f"{self.folder}/{name}" for name in sizes}  # a Path for each would cost more than the rest
            mappings = {name: _map(machine, (state, name), paths[name], size) for name, size in sizes.items()}
        return {spec.name: np.frombuffer(mappings[spec.name], spec.dtype) for spec in self.layout.arrays}


def _sizes(layout: Layout, capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the size of each array in bytes."""
    return {spec.name: spec.factor * capacity[spec.dimension] * np.dtype(spec.dtype).itemsize for spec in layout.arrays}


def _has(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size >= size  # noqa: PTH116 (a Path costs more than the call)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove(generation: Path) -> None:
    if generation.is_dir():
        for path in generation.iterdir():
            path.unlink()
        generation.rmdir()
    else:  # one file, as in earlier layouts
        generation.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Kept:
    """A mapping and the (device, inode) of its file; while the mapping exists, no other file can get that inode."""

    inode: tuple[int, int]
    mapping: mmap.mmap


KEPT = 256
"""Most mappings that a process keeps: each uses a file descriptor, and the limit is often 1,024 per process."""

_KEPT: dict[tuple[str, str], _Kept] = {}
"""This process's mappings by state folder and array, the most recently used last.

They are kept because a new mapping costs a page fault for each page that a batch touches.
"""

_KEEPING = Lock()


def _map(machine: Machine, place: tuple[str, str], path: str, size: int) -> mmap.mmap:
    """Return a mapping of `size` bytes of the file; reuse the kept one if it has that size and is of the same file."""
    with _KEEPING:
        kept = _KEPT.pop(place, None)
    if kept is None or len(kept.mapping) != size or kept.inode != _inode(path):
        kept = _mapped_file(machine, path, size)
    with _KEEPING:
        _KEPT[place] = kept
        while len(_KEPT) > KEPT:
            del _KEPT[next(iter(_KEPT))]
    return kept.mapping


def _mapped_file(machine: Machine, path: str, size: int) -> _Kept:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        status = os.fstat(descriptor)
        if status.st_size < size:
            # rule: space-reserved
            machine.reserve(descriptor, status.st_size, size - status.st_size)
        return _Kept((status.st_dev, status.st_ino), mmap.mmap(descriptor, size))
    finally:
        os.close(descriptor)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path costs more than the call)
    except FileNotFoundError:
        return None
    return _identity(status)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Create and open the folder; yield its file descriptor, which refers to it even if it is renamed or removed."""
    with disk.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _flock(path: Path, folder: int, timeout_s: float, clock: Clock) -> Iterator[int]:
    """Hold the lock inside the block; yield the lock file's descriptor. Tidegate never removes this empty file."""
    with disk.disk_errors(path):
        descriptor = os.open(path.name, os.O_RDWR | os.O_CREAT, 0o644, dir_fd=folder)
    try:
        _wait_for_lock(descriptor, path, clock.monotonic() + timeout_s, clock)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, path: Path, deadline: float, clock: Clock) -> None:
    while True:
        try:
            # rule: partition-lock
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.monotonic() >= deadline:
                raise EngineError(
                    "another task holds the partition's local state",
                    value=path,
                    remedy="a task of a failed attempt still runs; the driver tries again",
                ) from None
            clock.sleep(_LOCK_PAUSE_S)
