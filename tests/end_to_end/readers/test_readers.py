"""The operator log is an open table: Spark SQL, DuckDB and delta-rs read the same from it."""

from __future__ import annotations

import duckdb
import pytest

from tests.end_to_end.readers.by_duckdb import duck
from tests.kill.harness import records, split
from tests.lakes import delta_table
from tidegate.spark import register_views

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.spark_reads]

BUFFER = """SELECT partition, key, value, timestamp, place FROM
            (SELECT *, row_number() OVER (PARTITION BY partition, key ORDER BY batch DESC, seq DESC) AS age
             FROM log WHERE kind = 'state') AS aged WHERE age = 1 AND op = 'put'"""
EMISSIONS = "SELECT partition, batch, seq, key, value, timestamp, cause FROM log WHERE kind = 'emission'"


def rows(table) -> list[tuple]:
    return sorted(tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in table)


def test_spark_duckdb_and_delta_rs_read_the_same_buffer_and_emissions_before_and_after_a_compaction(world):
    here = world(until={"time_limit": "5s"}, buffer={"max_keys": 100, "when_full": "emit"})
    for part in split(records(5_000), 2):
        here.feed(part)
        driver = here.run()
    before = read_by_all(here)
    driver.claim.operator.compact()
    assert read_by_all(here) == before


def read_by_all(here):
    """The buffer and the emissions, which all readers see alike."""
    register_views(here.spark, here.application)
    by_spark = {
        "buffer": rows(here.spark.sql("SELECT partition, key, value, timestamp, place FROM updates_buffer").collect()),
        "emissions": rows(here.spark.sql(EMISSIONS.replace("FROM log", "FROM updates_log")).collect()),
    }
    with duck(here.log) as connection:
        by_duckdb = {
            "buffer": rows(connection.sql(BUFFER).fetchall()),
            "emissions": rows(connection.sql(EMISSIONS).fetchall()),
        }
    with duckdb.connect() as connection:
        log = delta_table(here.log).to_pyarrow_dataset()  # noqa: F841 -- DuckDB finds it by its name; delta-rs reads it
        by_delta_rs = {
            "buffer": rows(connection.sql(BUFFER).fetchall()),
            "emissions": rows(connection.sql(EMISSIONS).fetchall()),
        }

    assert by_spark == by_duckdb == by_delta_rs
    assert 0 < len(by_spark["buffer"]) <= 400
    assert len(by_spark["emissions"]) > 1_000
    return by_spark


def test_a_view_at_an_earlier_version_shows_what_was_held_then(world):
    here, counts = world(until={"time_limit": "1h"}), []
    for part in ([(0, b"a", b"1", 1)], [(0, b"b", b"2", 2), (1, b"c", b"3", 3)]):
        here.feed(part)
        here.run()
        counts.append(delta_table(here.log).version())
    seen = []
    for version in counts:
        register_views(here.spark, here.application, version)
        seen.append(here.spark.sql("SELECT key FROM updates_buffer ORDER BY key").toArrow()["key"].to_pylist())
    assert seen == [[b"a"], [b"a", b"b", b"c"]]
