"""Batches that are kept from request to request are those of the log, and only new ones are read."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.console.logs import SUPPRESSION, Written, application, record
from tests.lakes import entry_path
from tidegate.console.pages import known_batches as batches
from tidegate.console.pages.known_batches import KnownBatches
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import log_after, metas_of

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

    def counted(of: OperatorLog, asked: range) -> list[dict[str, object]]:
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
    again.__dict__.update(log.__dict__, log=log_after(log.log.lake, None))
    again.batch([record(b"b", b"w", 9, 9)])
    found = known.newest_of(log_after(log.log.lake, None), 5)
    assert [meta.batch for meta in found] == [meta.batch for meta in before]
    assert (found[:-1], found[-1].attempt) == (before[:-1], again.newest.attempt)
    assert found[-1] != before[-1]
