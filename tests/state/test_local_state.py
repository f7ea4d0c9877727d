"""Local state: the lock, the header's slots, generations, growth, and a crash at every step."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.state.logs import MiniDriver
from tests.state.tally_operator import Tally
from tidegate.contracts.errors import EngineError, Superseded
from tidegate.operators.suppression import state as suppression
from tidegate.state.local import local_state, undo_file
from tidegate.state.local.header import SLOT_BYTES, HeaderFile
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.machine import ThisMachine
from tidegate.state.protocol_decisions import Header, RecoveryMethod

pytestmark = pytest.mark.fast

LAYOUT = Tally.layout
UNDO = pa.table({"key": [b"k"]})
HEADER = Header(
    table_id="t",
    epoch=1,
    batch=1,
    attempt="a",
    boot_id="b",
    complete=True,
    durable=False,
    generation=1,
    layout=("tally", 1),
    capacity={"keys": 4},
)


def lock(root: Path, epoch: int = 1, batch: int = 1, timeout_s: float = 5.0) -> object:
    return LocalState.lock(root, 0, operator="o", table_id="t", token=(epoch, batch), timeout_s=timeout_s)


def make(root: Path, value: int = 7) -> Path:
    """A complete state of batch 1 whose first count is the value; gives its folder."""
    with lock(root) as local:
        local.begin(1, 1, "a1")
        local.rebuild(LAYOUT).arrays()["counts"][0] = value
        local.complete()
        return local.folder


# --- the header


def test_a_header_reads_back_as_it_was_written(tmp_path: Path) -> None:
    HeaderFile(tmp_path / "header").write(HEADER, synced=True)
    assert HeaderFile(tmp_path / "header").read() == HEADER


def test_the_newest_valid_slot_counts_and_a_torn_one_does_not(tmp_path: Path) -> None:
    file = HeaderFile(tmp_path / "header")
    for batch in (1, 2, 3):
        file.write(replace(HEADER, batch=batch), synced=False)
    assert HeaderFile(file.path).read() == replace(HEADER, batch=3)
    torn = bytearray(file.path.read_bytes())
    torn[SLOT_BYTES + 100] ^= 1  # the third write went to the second slot
    file.path.write_bytes(torn)
    assert HeaderFile(file.path).read() == replace(HEADER, batch=2)


@pytest.mark.parametrize("content", [b"", b"x" * 2 * SLOT_BYTES, b"short"])
def test_a_file_without_a_valid_slot_has_no_header(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "header").write_bytes(content)
    assert HeaderFile(tmp_path / "header").read() is None


# --- the lock


def test_a_reopened_state_is_unchanged(tmp_path: Path) -> None:
    make(tmp_path, 7)
    with lock(tmp_path, batch=2) as local:
        assert (local.header.batch, local.header.attempt, local.header.complete) == (1, "a1", True)
        assert local.storage(LAYOUT).arrays()["counts"].tolist() == [7, 0, 0, 0]


def test_a_task_older_than_the_header_is_superseded_and_changes_nothing(tmp_path: Path) -> None:
    with lock(tmp_path, epoch=2, batch=9) as local:
        local.begin(2, 9, "newer")
    before = (local.folder / "header").read_bytes()
    with pytest.raises(Superseded), lock(tmp_path, epoch=1, batch=10):
        pass
    assert (local.folder / "header").read_bytes() == before


def test_a_lock_that_is_held_too_long_is_an_engine_error(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(EngineError, match="another task holds"), lock(tmp_path, timeout_s=0.01):
        pass
    with lock(tmp_path, timeout_s=0.01):
        pass


# --- storage


def test_new_arrays_are_zero_but_for_the_seed(tmp_path: Path) -> None:
    with lock(tmp_path) as local:
        arrays = local.rebuild(LAYOUT).arrays()
        assert {name for name, array in arrays.items() if array.any()} == {"seed"}


def test_a_state_has_the_seed_of_its_log(tmp_path: Path) -> None:
    seeds = []
    for root, table_id in ((tmp_path / "a", "t"), (tmp_path / "b", "t"), (tmp_path / "a", "another")):
        with LocalState.lock(root, 0, operator="o", table_id=table_id, token=(1, 1)) as local:
            seeds.append(local.rebuild(suppression.LAYOUT).arrays()["seed"].tobytes())
    assert seeds[0] == seeds[1] != seeds[2]
    assert len(set(seeds[0])) > 4


def test_growth_keeps_contents_at_the_front_and_zeroes_the_rest(tmp_path: Path) -> None:
    folder = make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        local.begin(1, 2, "a2")
        storage = local.storage(LAYOUT)
        for size in (1_000, 10_000):
            storage.grow({"keys": size})
        storage.grow({"keys": 5})
        assert storage.capacity() == {"keys": 10_000, "fixed": 1}
        storage.arrays()["counts"][9_999] = 3
        local.complete()
    assert [path.name for path in folder.glob("generation-*")] == ["generation-1"]
    with lock(tmp_path, batch=3) as local:
        counts = local.storage(LAYOUT).arrays()["counts"]
        assert np.flatnonzero(counts).tolist() == [0, 9_999]
        assert counts[[0, 9_999]].tolist() == [7, 3]


def test_a_rebuild_never_changes_the_earlier_generation(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = (folder / "generation-1" / "counts").read_bytes()
    with lock(tmp_path, batch=2) as local:
        local.begin(1, 2, "a2")
        local.rebuild(LAYOUT).arrays()["counts"][:] = 99
        assert (folder / "generation-1" / "counts").read_bytes() == before


def test_a_new_generation_has_its_name_when_the_change_is_complete(tmp_path: Path) -> None:
    folder = make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        local.begin(1, 2, "a2")
        local.rebuild(LAYOUT)
        assert {path.name for path in folder.glob("generation-*")} == {"generation-1", "generation-2.new"}
        local.complete()
        assert {path.name for path in folder.glob("generation-*")} == {"generation-2"}


def test_space_is_reserved_before_it_is_mapped(tmp_path: Path) -> None:
    folder = make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        local.begin(1, 2, "a2")
        local.storage(LAYOUT).grow({"keys": 10_000})
    status = (folder / "generation-1" / "counts").stat()
    assert status.st_blocks * 512 >= status.st_size == 80_000


def test_a_full_disk_is_an_engine_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with lock(tmp_path) as local, pytest.raises(EngineError, match="disk full") as stopped:
        local.rebuild(LAYOUT)
    assert stopped.value.remedy


def test_a_header_without_its_generation_is_not_a_state(tmp_path: Path) -> None:
    shutil.rmtree(make(tmp_path) / "generation-1")
    with lock(tmp_path, batch=2) as local:
        assert local.header is None


def test_a_kept_mapping_is_not_used_for_another_file_of_the_same_name(tmp_path: Path) -> None:
    folder = make(tmp_path, 7)
    path = folder / "generation-1" / "counts"
    content = bytearray(path.read_bytes())
    content[0] = 8
    path.unlink()
    path.write_bytes(content)  # as another process does after this one's attempt was lost
    with lock(tmp_path, batch=2) as local:
        assert local.storage(LAYOUT).arrays()["counts"][0] == 8


# --- loss of power


class UncertainDisk:
    """What may be on disk of a header file: a slot is any write since the last sync, the synced one, or torn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots: list[list[bytes]] = [[b""], [b""]]
        self._pwrite, self._fsync = os.pwrite, os.fsync
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def pwrite(self, descriptor: int, content: bytes, place: int) -> int:
        torn = content[:50] + b"?" + content[51:]
        self.slots[place // SLOT_BYTES] += [torn, content]
        return self._pwrite(descriptor, content, place)

    def fsync(self, descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "header":
            self.slots = [[slot[-1]] for slot in self.slots]
        self._fsync(descriptor)

    def headers(self, path: Path) -> Iterator[Header | None]:
        """Every header that the machine may find when it starts again."""
        for first, second in itertools.product(*self.slots):
            path.write_bytes(first.ljust(SLOT_BYTES, b"\0") + second)
            yield HeaderFile(path).read()


def test_arrays_are_synced_before_the_header_says_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, synced = make(tmp_path), list[str]()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    with lock(tmp_path, batch=2) as local:
        monkeypatch.setattr(os, "fsync", fsync)
        local.make_durable()
    arrays = {path.name for path in (folder / "generation-1").iterdir()}
    assert arrays | {"generation-1", folder.name} <= set(synced[: synced.index("header")])


def test_a_state_of_an_earlier_boot_or_a_dirty_one_is_not_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        assert local.trusted
        local.begin(1, 2, "a2")
        assert not local.trusted
        local.complete()
    with monkeypatch.context() as patch, lock(tmp_path, batch=2) as local:
        patch.setattr(ThisMachine, "boot_id", lambda _machine: "another")
        assert not local.trusted
        with pytest.raises(AssertionError, match="trusted"):
            local.make_durable()


def test_a_durable_header_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = UncertainDisk(monkeypatch)
    make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        local.make_durable()
    assert [header is not None and header.durable for header in disk.headers(tmp_path / "x")] == [True]


def test_after_a_change_no_power_failure_restores_the_durable_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = UncertainDisk(monkeypatch)
    make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        local.make_durable()
    for batch in (2, 3, 4):
        with lock(tmp_path, batch=batch) as local:
            local.begin(1, batch, f"a{batch}")
            assert not any(header is not None and header.durable for header in disk.headers(tmp_path / "x"))
            local.complete()
            assert not any(header is not None and header.durable for header in disk.headers(tmp_path / "x"))


# --- a crash at every step

Records = list[tuple[int, bool]]
STEPS = ("pwrite", "fsync", "posix_fallocate", "mkdir", "rename", "unlink", "rmdir")


class Crash(BaseException):
    """The process dies here."""


@contextmanager
def crash_at(step: int, *, after: bool) -> Iterator[Callable[[], int]]:
    """The given call into the operating system dies, before or after it had its effect; gives the calls so far."""
    calls = itertools.count()
    done = [0]

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            done[0] = number = next(calls) + 1
            if number == step and not after:
                raise Crash
            result = real(*args, **named)
            if number == step:
                raise Crash
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, dying(getattr(os, name)))
        yield lambda: done[0]


def goes_on(driver: MiniDriver) -> RecoveryMethod:
    return RecoveryMethod.GO_ON


def goes_on_from_durable(driver: MiniDriver) -> RecoveryMethod:
    with driver.lock() as local:
        local.make_durable()
    return RecoveryMethod.GO_ON


def catches_up(driver: MiniDriver) -> RecoveryMethod:
    """Another machine ran the newest batch."""
    folder = driver.root / "state"
    folder.rename(driver.root / "aside")
    driver.run([(2, False), (40, True)])
    folder.rename(driver.root / "other")
    (driver.root / "aside").rename(folder)
    return RecoveryMethod.CATCH_UP


def undoes(driver: MiniDriver) -> RecoveryMethod:
    driver.run([(2, True), (40, True)], commits=False)
    return RecoveryMethod.UNDO


def rebuilds(driver: MiniDriver) -> RecoveryMethod:
    with driver.lock() as local:
        local.begin(driver.epoch, driver.batch + 1, "killed in its kernel")
    return RecoveryMethod.REBUILD


@pytest.mark.parametrize(
    ("after", "same_process"), [(False, False), (True, False), (True, True)], ids=["before", "after", "survived"]
)
@pytest.mark.parametrize("situation", [goes_on, goes_on_from_durable, undoes, catches_up, rebuilds])
def test_the_decisions_are_right_after_a_crash_at_any_step_of_an_attempt(
    tmp_path: Path, situation: Callable[[MiniDriver], RecoveryMethod], same_process: bool, after: bool
) -> None:
    driver = MiniDriver(tmp_path)
    driver.run([(1, True), (2, True), (3, True), (9, True)])
    expected_way = situation(driver)
    untouched = driver.root / "untouched"
    (driver.root / "state").rename(untouched)
    expected = driver.state()
    for step in itertools.count(1):
        shutil.rmtree(driver.root / "state")
        shutil.copytree(untouched, driver.root / "state")
        local_state._KEPT.clear()
        with crash_at(step, after=after) as calls:
            try:
                way = driver.run([(1, False), (2, True), (300, True)], commits=False).plan.method
            except Crash:
                way = None
        if not same_process:
            local_state._KEPT.clear()
        assert driver.state() == expected, f"after a crash at step {step}"
        assert driver.run([(1, False), (5, True)], commits=False).plan.method is not RecoveryMethod.CATCH_UP
        assert driver.state() == expected
        if way is not None:
            assert way is expected_way
            assert calls() >= 3
            break


def test_a_process_keeps_a_bounded_number_of_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a file descriptor: a worker that has seen many partitions would run out of them."""
    monkeypatch.setattr(local_state, "KEPT", 3)
    for partition in range(20):
        with LocalState.lock(tmp_path, partition, token=(1, 1), operator="o", table_id="t") as local:
            local.begin(1, 1, "a")
            counts = local.rebuild(LAYOUT).arrays()["counts"]
            counts[0] = partition
            local.complete()
    assert len(local_state._KEPT) <= 3
    assert counts[0] == 19


def test_a_task_whose_folder_was_removed_does_not_change_the_new_folder(tmp_path: Path) -> None:
    shared = {"operator": "o", "table_id": "t"}
    with LocalState.lock(tmp_path, 0, token=(1, 1), **shared) as removed:
        shutil.rmtree(removed.folder)
        with LocalState.lock(tmp_path, 0, token=(2, 2), **shared) as present:
            present.begin(2, 2, "present")
            with pytest.raises(Superseded, match="removed while"):
                removed.begin(1, 1, "removed")
            assert present._file.read() == present.header


def test_a_task_whose_folder_was_removed_does_not_grow_the_files_of_another(tmp_path: Path) -> None:
    with LocalState.lock(tmp_path, 0, token=(1, 1), operator="o", table_id="t") as removed:
        removed.begin(1, 1, "removed")
        storage = removed.rebuild(Tally.layout)
        shutil.rmtree(removed.folder)
        with (
            LocalState.lock(tmp_path, 0, token=(2, 2), operator="o", table_id="t"),
            pytest.raises(Superseded, match="removed while"),
        ):
            storage.grow({name: 2 * size for name, size in Tally.layout.capacity.items()})


def test_a_header_goes_to_the_folder_of_the_lock_even_if_that_was_removed_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zombie: about to write that it is complete | somebody removes the folder | another task is complete | zombie"""
    shared = {"operator": "o", "table_id": "t"}
    write, found = HeaderFile.write, []

    def after_another(file: HeaderFile, header: Header, *, synced: bool) -> None:
        monkeypatch.setattr(HeaderFile, "write", write)
        shutil.rmtree(file.path.parent)
        with LocalState.lock(tmp_path, 0, token=(2, 2), **shared) as present:
            present.begin(2, 2, "present")
            present.rebuild(Tally.layout)
            present.complete()
            found.append(present.header)
        with suppress(FileNotFoundError):
            write(file, header, synced=synced)

    with LocalState.lock(tmp_path, 0, token=(1, 1), **shared) as zombie:
        zombie.begin(1, 1, "zombie")
        zombie.rebuild(Tally.layout)
        monkeypatch.setattr(HeaderFile, "write", after_another)
        with pytest.raises(Superseded, match="removed while"):
            zombie.complete()
    with LocalState.lock(tmp_path, 0, token=(3, 3), **shared) as local:
        assert [local.header] == found


def test_undo_rows_of_a_different_attempt_are_not_applied(tmp_path: Path) -> None:
    make(tmp_path)
    with lock(tmp_path, batch=2) as local:
        local.begin(1, 2, "a2")
        local.storage(LAYOUT)
        local.complete(UNDO)
        assert local.undo() == UNDO
        undo_file.write(local._undo_file(local.header), UNDO, (2, "another"))
        assert local.undo() is None
