"""The example tables of KIP-923, in both forms."""

from __future__ import annotations

import pytest

from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.testing.driver import Driver

pytestmark = pytest.mark.fast

TABLE = {1: {"1": "a", "2": "b", "3": "c"}, 2: {"1": "a", "2": "x", "3": "c"}, 3: {"1": "a", "2": "x", "3": "y"}}
STREAM = [("1", "d", 4), ("2", "e", 1), ("3", "f", 2), ("2", "g", 2), ("3", "h", 3)]
FAR_AHEAD = ("1", "far ahead", 1_000_000)


def drivers(versions: dict[str, str], **join: str) -> tuple[Driver, Driver]:
    """A table, and a join that reads it."""
    table = Driver(TableHistory(TableHistoryConfig.model_validate({"input": "table"} | versions)))
    rules = {
        "input": "stream",
        "table": "table",
        "join": "inner",
        "joiner": "tidegate.operators.testing.joiners:dashed",
    } | join
    return table, Driver(StreamTableJoin(StreamTableJoinConfig.model_validate(rules)), table=table)


def fill(table: Driver, *timestamps: int) -> None:
    """The table has the rows of those timestamps."""
    for timestamp in timestamps:
        for key, value in TABLE[timestamp].items():
            table.pipe(key, value, timestamp)


def results(stream: Driver, records: list[tuple[str, str, int]]) -> list[str]:
    """What the records cause, as the page writes it."""
    values = [emission.value or b"" for record in records for emission in stream.pipe(*record)]
    return [value.replace(b"-", b"").decode() for value in values]


@pytest.mark.parametrize("grace", ["2ms", "3ms", "9ms"])
def test_with_a_grace_every_record_is_joined_with_the_version_of_its_time_in_order(grace: str) -> None:
    #  table  1: a b c   2: a x c   3: a x y
    #  stream   d(4) e(1) f(2) g(2) h(3), then one far ahead
    table, stream = drivers({"history_retention": "10ms"}, grace=grace)
    fill(table, 1, 2, 3)
    assert results(stream, [*STREAM, FAR_AHEAD]) == ["eb", "fc", "gx", "hy", "da"]


def test_without_a_grace_a_table_of_latest_values_gives_the_value_at_the_record_s_arrival() -> None:
    table, stream = drivers({"versions": "latest"})
    fill(table, 1)
    found = results(stream, STREAM)
    fill(table, 2, 3)
    assert found == ["da", "eb", "fc", "gb", "hc"]


def test_without_a_grace_a_history_gives_versions_that_have_arrived() -> None:
    table, stream = drivers({"history_retention": "10ms"})
    fill(table, 1)
    found = results(stream, STREAM)
    fill(table, 2, 3)
    assert found == ["da", "eb", "fc", "gb", "hc"]
