"""Spark SQL, DuckDB and delta-rs agree on a table's history as of ten instants, before and after a compaction."""

from __future__ import annotations

import random

import duckdb
import pytest

from tests.end_to_end.readers.by_duckdb import duck
from tests.end_to_end.readers.tables import TABLE, TableLog, random_writes
from tests.lakes import delta_table
from tidegate.operators.table_history import TableHistoryRules
from tidegate.spark import register_views

pytestmark = [pytest.mark.spark, pytest.mark.spark_reads]

NEWEST = "row_number() OVER (PARTITION BY partition, key, timestamp ORDER BY batch DESC, seq DESC) AS age"
AS_OF = f"""SELECT partition, key, value, timestamp AS valid_from, next AS valid_to FROM
            (SELECT *, lead(timestamp) OVER (PARTITION BY partition, key ORDER BY timestamp) AS next
             FROM (SELECT *, {NEWEST} FROM log WHERE kind = 'state') AS aged WHERE age = 1 AND op = 'put') AS versions
            WHERE value IS NOT NULL AND timestamp <= {{instant}} AND (next IS NULL OR next > {{instant}})"""
SPARK = "SELECT partition, key, value, unix_millis(valid_from), unix_millis(valid_to)"

RETENTION, SPAN = 400, 1_000
CHANCE = random.Random(923)
INSTANTS = sorted(CHANCE.sample(range(SPAN - RETENTION, SPAN + 100), 10))


@pytest.fixture
def table(tmp_path, new_lake):
    """A history of 600 writes in six batches, most of it expired."""
    log = TableLog(new_lake(tmp_path / "lake"), TableHistoryRules(history_retention=f"{RETENTION}ms"))
    for batch in range(6):
        log.write(random_writes(batch, 100, first=150 * batch, span=SPAN - 750))
    return log


def rows(found):
    return sorted(tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in found)


def by_spark(spark, table):
    register_views(spark, table.application)
    return [rows(spark.sql(f"{SPARK} FROM {TABLE}_as_of(timestamp_millis({at}))").collect()) for at in INSTANTS]


def by_spark_from_the_view(spark):
    valid = "unix_millis(valid_from) <= {0} AND (valid_to IS NULL OR unix_millis(valid_to) > {0})"
    return [rows(spark.sql(f"{SPARK} FROM {TABLE}_history WHERE {valid.format(at)}").collect()) for at in INSTANTS]


def by_duckdb(table):
    with duck(table.lake / TABLE) as connection:
        return [rows(connection.sql(AS_OF.format(instant=at)).fetchall()) for at in INSTANTS]


def by_delta_rs(table):
    with duckdb.connect() as connection:
        connection.register("log", delta_table(table.lake / TABLE).to_pyarrow_dataset())
        return [rows(connection.sql(AS_OF.format(instant=at)).fetchall()) for at in INSTANTS]


def test_all_readers_see_the_same_history_as_of_ten_instants_before_and_after_a_compaction(spark, table):
    before = by_spark(spark, table)
    assert before == by_spark_from_the_view(spark) == by_duckdb(table) == by_delta_rs(table)
    assert [set(found) for found in before] == [table.looked_up(at) for at in INSTANTS]
    assert len({tuple(found) for found in before}) > 5
    table.compact()
    assert by_spark(spark, table) == by_duckdb(table) == by_delta_rs(table) == before
