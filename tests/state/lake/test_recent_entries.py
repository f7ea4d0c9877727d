"""Entries of a log in an object store that another program replaces when the driver has committed further ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lakes import lake_at
from tests.state.logs import OPERATOR, SCHEMA, commit_rows, rows
from tidegate.contracts.errors import StateError, Unavailable
from tidegate.state.delta_log import recent_entries
from tidegate.state.delta_log.log_entries import entry_key
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Listed

pytestmark = pytest.mark.fast


class Bucket:
    """A folder that gives itself out as a bucket, whose ETags are `ETAGS`; counts what is listed and read."""

    place = Place.of("s3://bucket/tally")

    def __init__(self, folder: Path, etags: str) -> None:
        self._lake, self._etags = lake_at(folder), etags
        self.listings, self.is_away = 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lake, name)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        if self.is_away:
            raise Unavailable("the lake does not answer")
        self.listings += prefix == "_delta_log"
        for found in self._lake.list_after(prefix, after):
            digest = recent_entries._digest(self._lake.get(found.key) or b"")
            yield found._replace(etag=f'"{digest}"') if self._etags == "digests" else found


class Ticking:
    """A clock that the test sets."""

    seconds = 1_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1_000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture(params=["digests", "others"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    (tmp_path / OPERATOR / "_delta_log").mkdir(parents=True)
    return Bucket(tmp_path / OPERATOR, request.param)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def log(bucket: Bucket, clock: Ticking) -> OperatorLog:
    """A log with three commits of this driver."""
    opened = OperatorLog.open(bucket, OPERATOR, SCHEMA, create=True, clock=clock)  # type: ignore[arg-type]
    for batch in (1, 2, 3):
        commit_rows(opened, batch, {("state", 0): rows(f"k{batch}")})
    return opened


def overwrite(bucket: Bucket, version: int) -> None:
    """Another program has put an entry of the same length there."""
    entry = bucket.get(entry_key(version))
    bucket.put(entry_key(version), entry[:-2] + b" \n")


def test_an_entry_below_the_newest_that_is_replaced_late_is_found(
    log: OperatorLog, bucket: Bucket, clock: Ticking
) -> None:
    """0 s: commits 1 to 3 --- 60 s: a look, all well --- 61 s: 4 --- 62 s: another program replaces 4, below 5"""
    clock.sleep(recent_entries.LOOK_EVERY_S)
    log.check_own_entry()
    for batch in (4, 5):
        commit_rows(log, batch, {("state", 0): rows("k")})
    overwrite(bucket, 4)
    log.check_own_entry()  # no look is due
    clock.sleep(recent_entries.LOOK_EVERY_S)
    with pytest.raises(StateError, match="replaced an entry") as told:
        log.check_own_entry()
    assert entry_key(4) in str(told.value.value)


def test_a_look_that_fails_is_repeated(log: OperatorLog, bucket: Bucket, clock: Ticking) -> None:
    overwrite(bucket, 2)
    clock.sleep(recent_entries.LOOK_EVERY_S)
    bucket.is_away = True
    with pytest.raises(Unavailable):
        log.check_own_entry()
    bucket.is_away = False
    with pytest.raises(StateError, match="replaced an entry"):
        log.check_own_entry()


def test_a_driver_that_commits_nothing_looks_no_more(log: OperatorLog, bucket: Bucket, clock: Ticking) -> None:
    before = bucket.listings
    for _ in range(10):
        clock.sleep(recent_entries.LOOK_EVERY_S)
        log.check_own_entry()
    assert bucket.listings == before + 1


def test_an_entry_that_was_cleaned_up_is_not_replaced(log: OperatorLog, bucket: Bucket, clock: Ticking) -> None:
    bucket.delete([entry_key(1)])
    clock.sleep(recent_entries.LOOK_EVERY_S)
    log.check_own_entry()
