"""The reads of a batch, a claim, `status` and a backfill do not grow with the length of the log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.long_log import NAME, application_in, batch, catch_up_to_the_last, claim, make
from tests.hypothesis_profile import WHOLE
from tests.lakes import lake_at
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import status
from tidegate.state.delta_log.log_entries import DELTA_LOG
from tidegate.state.delta_log.log_version import LogVersion

pytestmark = pytest.mark.fast

LENGTHS = (1_000, 2_000, 20_000 if WHOLE else 5_000)
"""The first log is there to import and to compile; the others are compared."""
PARTITIONS = 20


class Work(NamedTuple):
    """What a piece of work asked of the disk: files opened, folders listed, calls of `read`, bytes read."""

    opened: int
    listed: int
    reads: int
    bytes: int


_seen: list[str] = []
_watching = False


def _watch(event: str, _arguments: object) -> None:
    if _watching and event in ("open", "os.scandir", "os.listdir"):
        _seen.append(event)


sys.addaudithook(_watch)


@contextmanager
def watched() -> Iterator[list[Work]]:
    """Inside, the work of this process is counted; what it came to is there at the end."""
    global _watching
    found: list[Work] = []
    before, _watching = _io(), True
    _seen.clear()
    try:
        yield found
    finally:
        _watching = False
        after = _io()
        listed = sum(event != "open" for event in _seen)
        work = (after[name] - before[name] for name in ("syscr", "rchar"))
        found.append(Work(len(_seen) - listed, listed, *work))


def _io() -> dict[str, int]:
    lines = (line.split(":") for line in Path("/proc/self/io").read_text().splitlines())
    return {name: int(count) for name, count in lines}


@pytest.fixture(scope="module")
def applications(tmp_path_factory: pytest.TempPathFactory) -> list[Application]:
    """Applications whose logs have these lengths."""
    made = [application_in(tmp_path_factory.mktemp(f"of {length}")) for length in LENGTHS]
    for application, length in zip(made, LENGTHS, strict=True):
        log = make(application, partitions=PARTITIONS, commits=length)
        assert sum(1 for _entry in (log.place.folder / DELTA_LOG).iterdir()) > length
    return made


def one_batch(application: Application) -> Callable[[], object]:
    """A batch of a driver that has claimed the operator."""
    log = claim(application)
    newest = log.newest()
    assert newest is not None
    return lambda: log.commit(batch(newest, 3), [])


def a_claim(application: Application) -> Callable[[], object]:
    return lambda: claim(application)


def a_status(application: Application) -> Callable[[], object]:
    return lambda: status.operator_status(application, NAME)


def a_backfill(application: Application) -> Callable[[], object]:
    """The last five batches are missing."""
    return lambda: catch_up_to_the_last(application)


@pytest.mark.parametrize("kind", [a_status, a_backfill, a_claim, one_batch])
def test_the_work_of_a_batch_does_not_grow_with_the_log(
    applications: list[Application],
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Application], Callable[[], object]],
) -> None:
    monkeypatch.setattr(status, "_broker_error", lambda _application: "no broker is asked")
    found = []
    for application in applications:
        work = kind(application)
        with watched() as counted:
            work()
        found.append(counted[0])
    _first, short, long = found
    assert long.opened <= short.opened + 2
    leases = 1 if kind is a_status else 0  # a folder with one file for each driver that runs
    assert long.listed == short.listed == leases
    assert long.reads <= 1.1 * short.reads + 10
    assert long.bytes <= 1.1 * short.bytes + 20_000
    assert long.opened + long.reads > 0


def test_the_newest_batches_of_a_long_log_are_read_one_by_one(applications: list[Application]) -> None:
    log = LogVersion.at(lake_at(applications[1].lake.folder / NAME), None)
    newest = log.newest()
    assert newest is not None
    assert [meta.batch for meta in catch_up_to_the_last(applications[1])] == list(
        range(newest.batch - 4, newest.batch + 1)
    )
