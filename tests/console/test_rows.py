"""Rows of logs as of any batch: what is held, and outputs, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.console.logs import PIPELINE, START_MS, SUPPRESSION, TABLE, WINDOWS, Written, application, record, table_of
from tidegate.console import rows as pages
from tidegate.console.pages.known_logs import KnownLog
from tidegate.console.rows import PAGE_ROWS, Page, Query, read_page
from tidegate.contracts.errors import StateError, UserError
from tidegate.contracts.log_schema import Kind
from tidegate.operators.registry import kind_of
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.positions import Position
from tidegate.state.lake.opening import open_lake
from tidegate.state.slots import live_rows
from tidegate.state.upkeep.cleanup import clean_up

pytestmark = pytest.mark.fast


def written(folder: Path, config: Mapping[str, Any]) -> Written:
    return Written(application(folder, op=dict(config)), "op")


def page(log: Written, kind: Kind, **query: Any) -> Page:
    rules = log.operator_of(query.get("step"))
    return read_page(KnownLog(log.log.lake).after(query.get("batch")), rules, Query(kind=kind, **query))


def all_pages(log: Written, kind: Kind, **query: Any) -> pa.Table:
    """The rows of all pages, each of which is found by the position that the one before it names."""
    found, before = [], None
    while True:
        one = page(log, kind, before=before, **query)
        found.append(one.rows)
        if one.older is None:
            return pa.concat_tables(found, promote_options="default")
        before = Position.of(str(one.older))


def test_a_suppression_shows_what_it_held_after_each_batch(tmp_path: Path) -> None:
    """
    batch  1: a at 0 s, b at 1 s     2: a at 2 s     3: c at 12 s, which releases a and b
    """
    log = written(tmp_path, SUPPRESSION)
    log.batch([record(b"a", b"1", 0, 0), record(b"b", b"2", 1, 1)])
    log.batch([record(b"a", b"3", 2, 2)])
    log.batch([record(b"c", b"4", 12, 3)])
    held = {batch: dict(table_of(page(log, "state", batch=batch).rows, "key", "value")) for batch in (1, 2, 3)}
    assert held == {1: {b"a": b"1", b"b": b"2"}, 2: {b"a": b"3", b"b": b"2"}, 3: {b"c": b"4"}}
    since = page(log, "state", batch=2).rows
    assert dict(zip(since["key"].to_pylist(), since["held_since"].cast(pa.int64()).to_pylist(), strict=True)) == {
        b"a": START_MS,
        b"b": START_MS + 1_000,
    }
    assert table_of(page(log, "emission").rows, "key", "cause") == [(b"b", "time"), (b"a", "time")]


def test_a_table_shows_when_each_version_ends_and_no_tombstones(tmp_path: Path) -> None:
    """a: 1 from 0 s, 2 from 5 s, deleted at 9 s.   b: 3 from 7 s"""
    log = written(tmp_path, TABLE)
    log.batch([record(b"a", b"1", 0, 0), record(b"a", b"2", 5, 1), record(b"b", b"3", 7, 2), record(b"a", None, 9, 3)])
    rows = page(log, "state").rows
    ends = [None if end is None else end - START_MS for end in rows["valid_to"].cast(pa.int64()).to_pylist()]
    assert sorted(zip(rows["value"].to_pylist(), ends, strict=True)) == [(b"1", 5_000), (b"2", 9_000), (b"3", None)]


def test_windows_show_their_bounds_and_whether_they_are_final(tmp_path: Path) -> None:
    log = written(tmp_path, WINDOWS)
    log.batch([record(b"a", b"1", 0, 0), record(b"a", b"1", 1, 1)])
    [shown] = page(log, "state").rows.to_pylist()
    assert shown["window_end"] - shown["window_start"] == 60_000
    assert (shown["key"], shown["final"]) == (b"a", False)


def test_a_pipeline_shows_what_a_step_holds(tmp_path: Path) -> None:
    log = written(tmp_path, PIPELINE)
    log.batch([record(b"a", b'{"delay": 1}', 0, 0), record(b"b", b'{"delay": 0}', 1, 1)])
    found = page(log, "state", step="limited")
    assert (found.rows["key"].to_pylist(), found.total) == ([b"a"], 1)


def test_pages_of_emissions_together_have_every_row_once_newest_first(tmp_path: Path) -> None:
    log = written(tmp_path, SUPPRESSION)
    for batch in range(6):
        for partition in (0, 1):
            second = 20 * batch
            log.batch([record(b"%d-%d" % (batch, n), b"v", second, 100 * batch + n) for n in range(20)], partition)
    expected = log.log.read("emission").sort_by([(name, "descending") for name in ("batch", "partition", "seq")])
    assert len(expected) > 3 * PAGE_ROWS
    for partition in (None, 0, 1):
        found = all_pages(log, "emission", partition=partition)
        wanted = [row for row in table_of(expected, "batch", "partition", "seq", "key") if partition in (None, row[1])]
        assert table_of(found, "batch", "partition", "seq", "key") == wanted
    log.compact()
    assert table_of(all_pages(log, "emission"), "key") == table_of(expected, "key")


def test_pages_of_what_is_held_together_have_every_row_once(tmp_path: Path) -> None:
    log = written(tmp_path, SUPPRESSION)
    log.batch([record(b"%03d" % n, b"v", 0, n) for n in range(2 * PAGE_ROWS + 1)])
    found = all_pages(log, "state")
    assert sorted(found["key"].to_pylist()) == [b"%03d" % n for n in range(2 * PAGE_ROWS + 1)]
    assert page(log, "state").total == 2 * PAGE_ROWS + 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    config=st.sampled_from([SUPPRESSION, TABLE, WINDOWS]),
    batches=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), min_size=1, max_size=12), max_size=8),
    compacted=st.integers(0, 8),
)
def test_pages_have_what_all_state_rows_together_say_is_held(
    tmp_path_factory: pytest.TempPathFactory,
    config: dict[str, Any],
    batches: list[list[tuple[int, int]]],
    compacted: int,
) -> None:
    log, offset = written(tmp_path_factory.mktemp("held"), config), 0
    for number, batch in enumerate(batches):
        rows = [
            record(b"%d" % key, b"v" if second % 7 else None, second, offset + at)
            for at, (key, second) in enumerate(batch)
        ]
        log.batch(rows)
        offset += len(rows)
        if number == compacted:
            log.compact()
    live = live_rows(log.log.read("state", 0), tuple(log.operator.slot))
    everything = kind_of(log.config.kind).held(live, log.config.shown())
    with (
        patch.object(pages, "PAGE_ROWS", 3),
        patch.object(pages, "FIRST_SPAN", 1),
        patch.object(pages, "SPAN_GROWTH", 2),
    ):
        found = all_pages(log, "state")
    expected = everything.sort_by([("batch", "descending"), ("seq", "descending")])
    shown = [name for name in found.column_names if name in expected.column_names]
    assert found.select(shown).to_pylist() == expected.select(shown).to_pylist()


def test_a_page_of_what_is_held_reads_only_the_batches_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, read = written(tmp_path, SUPPRESSION), []
    for batch in range(20):
        log.batch([record(b"%d-%d" % (batch, n), b"v", 0, 10 * batch + n) for n in range(10)])

    def noted(self: LogVersion, *args: Any, **more: Any) -> pa.Table:
        rows = original(self, *args, **more)
        read.extend(rows["batch"].to_pylist())
        return rows

    original = LogVersion.read
    monkeypatch.setattr(LogVersion, "read", noted)
    assert len(page(log, "state").rows) == PAGE_ROWS
    assert min(read) == 13  # 8 batches are read at first


@given(
    top=st.integers(0, 3_000),
    files=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 400)), max_size=6),
)
def test_ranges_of_batches_have_each_batch_of_the_files_once_and_begin_where_files_are(
    top: int, files: list[tuple[int, int]]
) -> None:
    below = [DataFile(path="", parts=(), size=0, written_ms=0, min_batch=at, max_batch=at + n) for at, n in files]
    below = [file for file in below if file.min_batch <= top]
    ranges = list(pages._spans(top, below))
    assert all(after < up_to for after, up_to in ranges)
    assert all(lower[1] <= upper[0] for upper, lower in pairwise(ranges))
    read = {batch for after, up_to in ranges for batch in range(after + 1, up_to + 1)}
    assert {batch for file in below for batch in range(file.min_batch, min(file.max_batch, top) + 1)} <= read
    for _after, up_to in ranges:
        assert any(file.min_batch <= up_to <= file.max_batch for file in below)


def test_a_page_stays_the_same_while_batches_are_committed(tmp_path: Path) -> None:
    log = written(tmp_path, SUPPRESSION)
    log.batch([record(b"a", b"1", 0, 0)])
    log.batch([record(b"b", b"2", 20, 1)])
    before = {kind: page(log, kind, batch=2).rows for kind in ("state", "emission")}  # type: ignore[arg-type]
    log.batch([record(b"c", b"3", 40, 2)])
    log.compact()
    after = {kind: page(log, kind, batch=2).rows for kind in ("state", "emission")}  # type: ignore[arg-type]
    assert before == after


def test_a_batch_that_does_not_exist_is_that_before_it(tmp_path: Path) -> None:
    log = written(tmp_path, SUPPRESSION)
    log.batch([record(b"a", b"1", 0, 0)])
    assert page(log, "state", batch=99).newest.batch == 1


def test_a_batch_that_the_log_no_longer_reaches_back_to_is_said(tmp_path: Path) -> None:
    log = written(tmp_path, SUPPRESSION)
    with patch("tidegate.state.delta_log.operator_log.CHECKPOINT_EVERY", 4):
        for second in range(12):
            log.batch([record(b"a", b"v", second, second)])
            if second == 5:
                log.compact()
    clean_up(log.log, clock_ms=log.newest.clock + 10**9, rewind_window_ms=0)
    with pytest.raises(UserError, match="no longer reaches back"):
        page(log, "state", batch=1)
    assert page(log, "state", batch=13).newest.batch == 13


def test_a_damaged_log_is_said(tmp_path: Path) -> None:
    log = written(tmp_path, SUPPRESSION)
    log.batch([record(b"a", b"1", 0, 0)])
    for file in (tmp_path / "lake" / "op").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(StateError, match="missing or damaged"):
        page(log, "state")


def test_a_state_that_is_too_large_for_a_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path, SUPPRESSION)
    log.batch([record(b"a", b"1", 0, 0), record(b"b", b"1", 0, 1)])
    monkeypatch.setattr(pages, "LARGEST_STATE_ROWS", 1)
    with pytest.raises(UserError, match="too large for a page"):
        page(log, "state")


def test_a_page_of_rare_rows_ends_after_so_many_others_and_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, PIPELINE)
    for batch in range(4):
        log.batch([record(b"a", b'{"delay": 1}', 20 * batch, batch)])
    monkeypatch.setattr(pages, "LOOKED_THROUGH_ROWS", 1)
    first = page(log, "emission", step="another")
    assert len(first.rows) == 0 and first.older is not None
    assert len(all_pages(log, "emission", step="another")) == 0
    every = table_of(log.log.read("emission"), "batch")
    assert len(every) > 1 and table_of(all_pages(log, "emission", step="limited"), "batch") == every[::-1]


@pytest.mark.parametrize("text", ["", "1", "1.2", "1.2.x", "1.2.3.4", "1.2.3; DROP TABLE"])
def test_a_position_is_three_numbers(text: str) -> None:
    with pytest.raises(UserError, match="no position"):
        Position.of(text)


def test_an_operator_without_a_log_is_said(tmp_path: Path) -> None:
    given = application(tmp_path, op=SUPPRESSION)
    with pytest.raises(UserError, match="no log yet"):
        KnownLog(open_lake(given.lake / "op")).after(None)
