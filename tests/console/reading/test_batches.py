"""Logs and batches that are kept from request to request are those of the lake, and only new ones are read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.console.logs import START_MS, SUPPRESSION, Written, application, record
from tests.lakes import entry_path
from tidegate.console.pages import known_batches as batches
from tidegate.console.pages.known_batches import KnownBatches
from tidegate.console.pages.known_logs import KnownLog, KnownLogs
from tidegate.contracts.errors import UserError
from tidegate.state import disk
from tidegate.state.delta_log.delta_snapshot import Snapshot, load
from tidegate.state.delta_log.log_entries import newest_version, put_entry
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import log_after, metas_of, metas_since
from tidegate.state.upkeep.cleanup import clean_up

pytestmark = pytest.mark.fast

BATCHES = 24


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A log of some batches, with a compaction among them."""
    made = Written(application(tmp_path_factory.mktemp("batches"), op=dict(SUPPRESSION)), "op")
    for second in range(BATCHES):
        made.batch([record(b"a", b"v", second, second)], second % 2)
        if second == BATCHES // 2:
            made.compact()
    return made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.tuples(st.integers(1, BATCHES), st.integers(1, BATCHES)), max_size=12))
def test_kept_batches_are_those_of_the_log_whatever_was_asked_before(
    log: Written, asked: list[tuple[int, int]]
) -> None:
    known = KnownBatches()
    with patch.object(batches, "MOST_KEPT", 10):
        for batch, most in asked:
            then = log_after(log.log.lake, batch)
            assert known.newest_of(then, most) == metas_of(then, range(max(0, batch - most + 1), batch + 1))


def test_only_new_batches_are_read_from_the_log(log: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    known, read = KnownBatches(), []
    known.newest_of(log_after(log.log.lake, BATCHES - 4), 8)
    documents = batches.documents

    def counted(of: LogVersion, asked: range) -> list[dict[str, object]]:
        found = documents(of, asked)
        read.extend(document["batch"] for document in found)
        return found

    monkeypatch.setattr(batches, "documents", counted)
    monkeypatch.setattr(batches, "metas_of", lambda _log, asked: [] if not asked else pytest.fail("read again"))
    assert len(known.newest_of(log_after(log.log.lake, BATCHES), 8)) == 8
    assert read == list(range(BATCHES - 4, BATCHES + 1))


def test_batches_in_place_of_others_that_were_moved_away_are_read_again(tmp_path: Path) -> None:
    log = Written(application(tmp_path, op=dict(SUPPRESSION)), "op")
    for second in range(4):
        log.batch([record(b"a", b"v", second, second)])
    known = KnownBatches()
    before = known.newest_of(log.log, 5)
    entry_path(log.log.lake, log.log.version).unlink()
    again = Written.__new__(Written)
    again.__dict__.update(log.__dict__, log=OperatorLog.at(log.log.lake, None))
    again.batch([record(b"b", b"w", 9, 9)])
    found = known.newest_of(log_after(log.log.lake, None), 5)
    assert [meta.batch for meta in found] == [meta.batch for meta in before]
    assert (found[:-1], found[-1].attempt) == (before[:-1], again.newest.attempt)
    assert found[-1] != before[-1]


@given(asked=st.lists(st.one_of(st.none(), st.integers(0, BATCHES + 2)), min_size=1, max_size=6))
def test_a_known_log_is_the_log_after_each_batch(log: Written, asked: list[int | None]) -> None:
    known = KnownLog(log.log.lake)
    for batch in asked:
        found, expected = known.after(batch), log_after(log.log.lake, batch)
        assert (found.version, found.newest()) == (expected.version, expected.newest())
        assert found.data_files("state") == expected.data_files("state")
    assert known.readable() == range(BATCHES + 2)


def test_a_log_that_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(application(tmp_path, op=dict(SUPPRESSION)), "op")
    written.batch([record(b"a", b"v", 0, 0)])
    known, opened = KnownLog(written.log.lake), []
    at = LogVersion.at
    monkeypatch.setattr(LogVersion, "at", lambda lake, version: opened.append(version) or at(lake, version))
    for _ in range(3):
        known.after(None)
    assert opened == [2]
    written.batch([record(b"b", b"v", 1, 1)])
    assert (known.after(None).version, opened) == (3, [2])
    entry_path(written.log.lake, 3).unlink()
    assert (known.after(None).version, opened) == (2, [2, 2])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(done=st.lists(st.sampled_from(["batch", "compact", "clean up", "foreign", "ask"]), max_size=16))
def test_a_log_that_is_followed_is_the_log_as_it_is_read_anew(
    tmp_path_factory: pytest.TempPathFactory, done: list[str]
) -> None:
    written = Written(application(tmp_path_factory.mktemp("followed"), op=dict(SUPPRESSION)), "op")
    known = KnownLog(written.log.lake)
    with patch("tidegate.state.delta_log.operator_log.CHECKPOINT_EVERY", 3), patch.object(disk, "sync", lambda _: None):
        for second, what in enumerate([*done, "ask"]):
            match what:
                case "batch":
                    written.batch([record(b"%d" % (second % 3), b"v", second, second)])
                case "compact":
                    written.compact()
                case "clean up":
                    clean_up(written.log, clock_ms=written.newest.clock + 10**9, rewind_window_ms=0)
                case "foreign":
                    actions = [{"commitInfo": {"operation": "SET TBLPROPERTIES"}}]
                    assert put_entry(written.log.lake, newest_version_of(written) + 1, actions)
                case "ask":
                    found, expected = known.after(None), log_after(written.log.lake, None)
                    assert _facts(found) == _facts(expected)
                    batches = readable_of(expected)
                    assert known.readable() == batches
                    for batch in list(batches)[::3]:
                        assert _facts(known.after(batch)) == _facts(log_after(written.log.lake, batch))


def newest_version_of(written: Written) -> int:
    """The newest version of the log, entries of other programs included."""
    newest = newest_version(written.log.lake)
    assert newest is not None
    return newest


def readable_of(log: LogVersion) -> range:
    """The batches after which the log can be read, by trying all of them."""
    newest, found = log.newest(), []
    assert newest is not None
    for batch in range(newest.batch + 1):
        with suppress(UserError):
            log_after(log.lake, batch)
            found.append(batch)
    return range(found[0], found[-1] + 1)


def _facts(log: LogVersion) -> tuple[Any, ...]:
    """What a handle knows of its log."""
    return (
        log.version,
        log.newest(),
        log.size,
        log.entries_since_checkpoint,
        [log.data_files(kind) for kind in ("state", "emission", "meta")],
    )


def test_a_version_is_the_same_whichever_checkpoint_it_is_read_from(tmp_path: Path) -> None:
    written = Written(application(tmp_path, op=dict(SUPPRESSION)), "op")
    with patch("tidegate.state.delta_log.operator_log.CHECKPOINT_EVERY", 4):
        for second in range(BATCHES):
            written.batch([record(b"%d" % (second % 3), b"v", second, second)])
            if second in (5, 6, 15):
                written.compact()
    for version in range(1, written.log.version + 1):
        replayed = Snapshot()
        replayed.catch_up(written.log.lake, version)
        found = load(written.log.lake, version)
        assert (found.files, found.metadata["id"]) == (replayed.files, replayed.metadata["id"])
        assert (found.version == version and version - found.checkpoint <= 4 + 3) or found.checkpoint == -1


@pytest.mark.parametrize("clock_s", [0, 1, 10, 25, 1_000])
def test_what_is_known_of_the_last_minute_is_what_the_log_has(log: Written, clock_s: int) -> None:
    """Batches are a second apart, and the first of them have no one before them."""
    known = KnownLogs(log.application)
    clock_ms = START_MS + clock_s * 1_000
    found = known.since("op", log_after(log.log.lake, None), clock_ms)
    assert list(found) == metas_since(log_after(log.log.lake, None), clock_ms)
