"""A stream that begins before its table's history: an error with a remedy, or results from the versions still kept."""

from __future__ import annotations

import pytest

from tidegate.contracts.errors import UserError
from tidegate.contracts.records import Records, Row
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.testing.driver import Driver

pytestmark = pytest.mark.fast

DAY_MS = 86_400_000


def a_year_of_table() -> Driver:
    """A table that was read to its end: a version a day, 30 days of them kept."""
    table = Driver(TableHistory(TableHistoryConfig.model_validate({"input": "t", "history_retention": "30d"})))
    table.pipe("BOS", "always", 0)
    for day in range(365):
        table.pipe("JFK", f"w{day}", day * DAY_MS)
    return table


def join_with(table: Driver, **given: object) -> Driver:
    """A join that begins to read its stream now."""
    config = {"input": "s", "table": "t", "join": "left", "grace": "2h", **given}
    return Driver(StreamTableJoin(StreamTableJoinConfig.model_validate(config)), table=table)


def test_a_stream_that_begins_before_the_table_s_history_stops_with_the_remedies() -> None:
    """table: days 0 to 364, kept from day 334 --- stream: day 0"""
    join = join_with(a_year_of_table())
    with pytest.raises(UserError, match="before the history of its table") as stopped:
        join.pipe("JFK", "f0", 1)
    assert "before_history: join" in str(stopped.value)
    assert "history_retention" in str(stopped.value)


def test_a_stream_that_begins_within_the_history_is_joined() -> None:
    join = join_with(a_year_of_table())
    join.pipe("JFK", "f0", 340 * DAY_MS)
    assert [emission.cause for emission in join.advance(364 * DAY_MS)] == ["matched"]


def test_lookups_before_the_history_are_expired_and_never_silently_unmatched() -> None:
    """table: kept from day 334; BOS has one version since day 0, LGA none --- stream: day 0"""
    join = join_with(a_year_of_table(), before_history="join")
    for key in ("JFK", "LGA", "BOS"):
        join.pipe(key, "f0", 1)
    found = [(emission.key, emission.cause) for emission in join.advance(2 * DAY_MS)]
    assert found == [(b"JFK", "expired"), (b"LGA", "unmatched"), (b"BOS", "matched")]


def test_an_inner_join_counts_expired_lookups() -> None:
    join = join_with(a_year_of_table(), join="inner", before_history="join", grace=0)
    records = Records.from_rows([Row(b"JFK", b"f0", 1, 0), Row(b"LGA", b"f1", 1, 1)])
    measures = join.state.step(records, 0).measures
    assert (measures["dropped_expired"], measures["dropped_unmatched"]) == (1, 1)
