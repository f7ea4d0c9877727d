"""The SQL views of a table: every version with its times, and which version was valid when, as in lookups."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from tests.end_to_end.readers.tables import TABLE, TableLog, Write, random_writes
from tidegate.contracts.errors import UserError
from tidegate.operators.table_history import TableHistoryRules
from tidegate.spark import history_as_of, register_views

pytestmark = [pytest.mark.spark, pytest.mark.spark_reads]

RETENTION = 60
SECONDS = [5, 80, 119, 150, 200, 10_000]
"""Instants before, at and after T - retention, between versions, and far ahead."""


@pytest.fixture
def table(tmp_path, new_lake):
    """A history with versions out of order, in four batches; T is about 200."""
    log = TableLog(new_lake(tmp_path / "lake"), TableHistoryRules(history_retention=f"{RETENTION}ms"))
    for batch in range(4):
        log.write(random_writes(batch, 40, first=40 * batch, span=80))
    return log


def shown(rows):
    """(partition, key, value, valid_from, valid_to) of each row, times in ms."""
    times = ("valid_from", "valid_to")
    whole = rows.select("partition", "key", "value", *(F.unix_millis(name).alias(name) for name in times))
    return {(row[0], bytes(row[1]), bytes(row[2]), row[3], row[4]) for row in whole.collect()}


def as_of(spark, timestamp):
    return shown(spark.sql(f"SELECT * FROM {TABLE}_as_of(timestamp_millis({timestamp}))"))


def test_as_of_equals_lookups_at_every_time_before_and_after_a_compaction(spark, table):
    for _ in range(2):
        register_views(spark, table.application)
        for instant in SECONDS:
            assert as_of(spark, instant) == table.looked_up(instant)
        table.compact()
    assert len(table.looked_up(10_000)) > 2


def test_at_an_earlier_version_the_views_show_the_versions_known_then(spark, table):
    known, version = table.looked_up(150), table.log.version
    table.write([Write(0, b"", b"new", 150), Write(1, b"a", None, 149)])
    assert table.looked_up(150) != known
    register_views(spark, table.application, version)
    assert as_of(spark, 150) == known
    register_views(spark, table.application)
    assert as_of(spark, 150) == table.looked_up(150)


def test_tombstones_end_versions_and_are_not_returned(spark, tmp_path, new_lake):
    #  A from 10, tombstone from 20, B from 30; C replaces A: same time, later offset
    table = TableLog(new_lake(tmp_path / "lake"), TableHistoryRules(history_retention="1h"))
    writes = [(b"A", 10), (None, 20), (b"B", 30), (b"C", 10), (None, 40), (b"D", 40)]
    table.write(Write(0, b"a", value, timestamp) for value, timestamp in writes)
    register_views(spark, table.application)
    expected = {(0, b"a", b"C", 10, 20), (0, b"a", b"B", 30, 40), (0, b"a", b"D", 40, None)}
    assert shown(spark.table(f"{TABLE}_history")) == expected
    assert as_of(spark, 25) == set()


def test_a_time_beyond_spark_s_range_is_shown_as_its_last_one(spark, tmp_path, new_lake):
    table = TableLog(new_lake(tmp_path / "lake"), TableHistoryRules(history_retention="1h"))
    table.write([Write(0, b"a", b"A", 2**61)])
    register_views(spark, table.application)
    assert {row[3] for row in shown(spark.table(f"{TABLE}_history"))} == {2**63 // 1_000}


def test_a_table_of_latest_values_has_a_history_of_one_and_no_as_of(spark, tmp_path, new_lake):
    table = TableLog(new_lake(tmp_path / "lake"), TableHistoryRules(versions="latest", key_format="string"))
    table.write([Write(0, b"a", b"A", 50), Write(0, b"b", b"B", 9)])
    table.write([Write(0, b"a", b"A2", 10), Write(0, b"b", None, 9)])
    views = register_views(spark, table.application)
    rows = spark.sql(f"SELECT key, value, unix_millis(valid_from), valid_to FROM {TABLE}_history").collect()
    assert [tuple(row) for row in rows] == [("a", bytearray(b"A2"), 10, None)]
    assert not any("as_of" in view for view in views)


def test_history_as_of_reads_a_log_by_its_folder_or_its_name_at_any_kind_of_time(spark, table):
    path, reached = str(table.lake / TABLE), {"lake_options": dict(table.lake.options)}
    by_kind = [150, datetime.fromtimestamp(0.150, UTC), F.expr("timestamp_millis(150)")]
    assert all(shown(history_as_of(spark, path, instant, **reached)) == table.looked_up(150) for instant in by_kind)
    assert shown(history_as_of(spark, TABLE, 150, lake=str(table.lake), **reached)) == table.looked_up(150)


def test_history_as_of_equals_lookups_with_rules_and_shows_the_whole_log_without(spark, table):
    early = 119

    def found(**rules):
        return history_as_of(spark, TABLE, early, lake=str(table.lake), lake_options=dict(table.lake.options), **rules)

    assert shown(found(rules=table.rules)) == table.looked_up(early)
    assert shown(found()) >= table.looked_up(early)
    text = table.rules.model_copy(update={"key_format": "string"})
    assert found(rules=text).schema["key"].dataType.simpleString() == "string"


def test_history_as_of_refuses_a_table_without_history(spark, table, tmp_path, new_lake):
    with pytest.raises(UserError, match="no log of that table"):
        history_as_of(spark, tmp_path / "nowhere", 1)
    with pytest.raises(UserError, match="latest values"):
        history_as_of(spark, TABLE, 1, lake=str(table.lake), rules=TableHistoryRules(versions="latest"))
