"""The join of two streaming DataFrames as of the event time, against a join of all rows in Spark SQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

import tidegate as tg
import tidegate.spark
from tests.kill.service import QUICK_START
from tests.patience import PATIENCE_S
from tests.runtime.stream import joined
from tidegate.contracts.errors import ConfigurationError
from tidegate.runtime.stream.columns import JoinedColumns, StreamColumns

pytestmark = pytest.mark.spark

PATIENCE = f"{PATIENCE_S}s"


def expected(spark: Any, folder: Path) -> Counter[Any]:
    """Each row of the stream with the newest version at its time, by Spark SQL over all rows."""
    sides = [spark.read.format("delta").load(joined.folder_of(folder, port)) for port in range(2)]
    rows = spark.sql(
        """SELECT stream.key, stream.at, max_by(version.value, version.at) AS value
           FROM {stream} AS stream LEFT JOIN {table} AS version ON version.key = stream.key AND version.at <= stream.at
           WHERE stream.at < {end} GROUP BY stream.key, stream.at, stream.number""",
        stream=sides[0],
        table=sides[1],
        end=joined.END,
    )
    return Counter((row["key"], row["at"], row["value"]) for row in rows.collect())


def emitted(folder: Path) -> Counter[Any]:
    """What the query has emitted."""
    rows = tg.read_log(folder / "lake" / joined.NAME).read_all().to_pylist()
    versions = [json.loads(row["value"], parse_int=str)["table"] for row in rows]
    return Counter((row["key"], row["timestamp"], version) for row, version in zip(rows, versions, strict=True))


def run_orders(spark: Any, folder: Path, partitions: int, seed: int) -> None:
    joined.write(folder, joined.keys_by_partition(spark, partitions), seed)
    joined.start(spark, folder, partitions).query.awaitTermination()
    assert emitted(folder) == expected(spark, folder)


def test_for_some_orders_of_arrival_within_the_grace_the_join_is_that_of_spark_sql(spark: Any, tmp_path: Path) -> None:
    run_orders(spark, tmp_path, 4, 1)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(10))
def test_for_1000_orders_of_arrival_within_the_grace_the_join_is_that_of_spark_sql(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    run_orders(spark, tmp_path, 100, seed)


POINTS = ("after_commit", "before_commit", "after_dirty_header", "after_claim")


@pytest.mark.kill
@pytest.mark.timeout(3_600)
def test_a_join_that_is_killed_20_times_loses_nothing_and_emits_nothing_twice(spark: Any, tmp_path: Path) -> None:
    joined.write(tmp_path, joined.keys_by_partition(spark, 4), 3)
    for kill in range(20):
        point = f"{POINTS[kill % len(POINTS)]}:1"
        died = subprocess.run(
            [sys.executable, "-m", "tests.runtime.stream.joined", str(tmp_path), "4"],
            env={**os.environ, **QUICK_START, "TIDEGATE_KILL_AT": point},
            start_new_session=True,
            timeout=900,
            check=False,
        )
        assert died.returncode == -signal.SIGKILL
    joined.start(spark, tmp_path, 4).query.awaitTermination()
    assert emitted(tmp_path) == expected(spark, tmp_path)


def test_within_a_batch_the_rows_of_the_table_come_first(spark: Any) -> None:
    rows = spark.createDataFrame([("a", "s", 5, None)], "key string, value string, at long, number long")
    versions = spark.createDataFrame([("a", "t", 9, 7)], "key string, value string, at long, number long")
    side = StreamColumns(key="key", value="value", timestamp="at", order_by="number")
    columns = JoinedColumns(stream=side, table=side)
    found = columns.prepared(columns.united(rows, versions), 1, 1).collect()
    assert [(row["port"], bytes(row["value"])) for row in found] == [(1, b"t"), (0, b"s")]


SIDES = {"key": "key", "timestamp": "at", "order_by": "number"}


def source(spark: Any, folder: Path, name: str, rows: list[tuple[Any, ...]], columns: str) -> Any:
    """A stream of the rows, of a Delta table of that name."""
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    frame.write.format("delta").mode("append").option("delta.enableChangeDataFeed", "true").save(str(folder / name))
    return spark.readStream.format("delta").load(str(folder / name))


def test_steps_behind_the_join_read_the_fields_of_both_sides(spark: Any, tmp_path: Path) -> None:
    planned = source(
        spark, tmp_path, "in", [("a", 5, 1), ("b", 6, 2), ("z", 90, 3)], "key string, at long, number long"
    )
    winds = source(
        spark, tmp_path, "winds", [("a", 30, 1, 1), ("b", 10, 2, 2), ("z", 0, 90, 3)],
        "key string, wind int, at long, number long",
    )  # fmt: skip
    weather = tidegate.spark.table(winds, **SIDES, history="1s", name="weather")
    chain = tidegate.spark.stream(planned, **SIDES).join(weather, how="inner", grace="10ms")
    stormy = chain.filter("weather.wind > 20").select(number="number", wind="weather.wind")
    with stormy.start("stormy", lake=tmp_path / "lake", state=tmp_path / "state", partitions=1) as query:
        query.await_caught_up(PATIENCE)
        found = query.sql("SELECT key, value FROM stormy_emissions")
        assert [(row["key"], row["value"]) for row in found] == [("a", '{"number":1,"wind":30}')]
        assert len(query.sql("SELECT * FROM stormy_weather_history")) == 3
        assert [row["key"] for row in query.sql("SELECT key FROM stormy_join_weather_buffer")] == ["z"]
        assert {row["step"] for row in query.sql("SELECT step FROM stormy_steps")} == {"weather", "join_weather"}


def test_a_delete_in_a_change_data_feed_ends_the_version(spark: Any, tmp_path: Path) -> None:
    columns = "key string, `wind.kn` int, at timestamp, number long"
    source(spark, tmp_path, "winds", [("a", 30, None, 1), ("b", 10, None, 2)], columns)
    stored = DeltaTable.forPath(spark, str(tmp_path / "winds"))
    stored.update("key = 'b'", {"`wind.kn`": F.lit(11)})
    stored.delete("key = 'a'")
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = feed.load(str(tmp_path / "winds"))
    weather = tidegate.spark.table(
        changes, key="key", timestamp="_commit_timestamp", order_by="_commit_version", history="30d"
    )
    with weather.start("weather", lake=tmp_path / "lake", state=tmp_path / "state", partitions=1) as query:
        query.await_caught_up(PATIENCE)
        newest = query.sql("SELECT key, value FROM weather_history WHERE valid_to IS NULL")
        assert [(row["key"], row["value"]) for row in newest] == [("b", '{"key":"b","wind.kn":11,"number":2}')]
        assert len(query.sql("SELECT * FROM weather_history")) == 3


def test_problems_of_both_sides_come_at_once_each_with_its_line(spark: Any, tmp_path: Path) -> None:
    planned = source(spark, tmp_path, "in", [("a", 5, 1)], "key string, at long, number long")
    weather = tidegate.spark.table(planned, key="key", timestamp="when", order_by="number", history="soon")
    chain = tidegate.spark.stream(planned, **SIDES).join(weather, how="left", grace="1h")
    with pytest.raises(ConfigurationError) as error:
        chain.start("joined", lake=tmp_path / "lake")
    wheres = [problem.where.split(" ", 1)[1] for problem in error.value.problems]
    assert wheres == [".table(), timestamp", ".table(), history_retention"]


def test_two_data_frames_with_keys_of_other_types_are_refused(spark: Any, tmp_path: Path) -> None:
    rows = source(spark, tmp_path, "in", [(1, 5, 1)], "key int, at long, number long")
    stream = tidegate.spark.stream(rows, **SIDES)
    for other, says in (
        (F.col("key").cast("long"), "int, and of the other bigint"),
        (F.struct("key"), "of the other struct<key:int>"),
        (F.col("key").cast("string"), "of the other string"),
    ):
        weather = tidegate.spark.table(rows, **{**SIDES, "key": other}, history="1d")
        with pytest.raises(ConfigurationError, match=says):
            stream.join(weather, how="left").start("joined", lake=tmp_path / "lake")
        pairs = tidegate.spark.join_streams(
            stream, tidegate.spark.stream(rows, **{**SIDES, "key": other}), how="inner", before=0, after=0, grace=0
        )
        with pytest.raises(ConfigurationError, match=says):
            pairs.start("joined", lake=tmp_path / "lake")


def test_a_table_of_an_application_and_two_tables_of_one_name_are_refused(spark: Any, tmp_path: Path) -> None:
    planned = source(spark, tmp_path, "in", [("a", 5, 1)], "key string, at long, number long")
    stream = tidegate.spark.stream(planned, **SIDES)
    app = tg.Application("app", kafka="127.0.0.1:9092", lake=tmp_path / "lake", keep_output="1d")
    of_topic = app.table("weather", history="1d")
    for tables, cause in (
        ([of_topic], "the table is that of a topic"),
        ([tidegate.spark.table(planned, **SIDES, history="1d") for _ in range(2)], "another table is joined"),
    ):
        chain = [stream.join(each, how="left") for each in tables][-1]
        with pytest.raises(ConfigurationError, match=cause):
            chain.start("joined", lake=tmp_path / "lake")


def test_results_have_the_types_of_both_data_frames(spark: Any, tmp_path: Path) -> None:
    columns = "key string, at timestamp, price decimal(20,4), tags array<string>, inner struct<day: date, x: double>"
    moment = datetime(2013, 1, 1, 5, 0, 0, 123456)
    rows = [("a", moment, Decimal("1234567890123.4567"), ["x", "y"], (date(2013, 1, 2), 0.1))]
    planned = source(spark, tmp_path, "in", [*rows, ("z", datetime(2013, 1, 3), None, None, None)], columns)
    named = {"key": F.struct("key", "inner.day"), "timestamp": "at", "order_by": "at"}
    weather = tidegate.spark.table(planned, **named, history="30d")
    chain = tidegate.spark.stream(planned, **named).join(weather, how="left", grace="1h")
    with chain.start("typed", lake=tmp_path / "lake", state=tmp_path / "state", partitions=1) as query:
        query.await_caught_up(PATIENCE)
        results = query.results()
        written = results.select("key", "value").writeStream.format("memory").queryName("typed_results")
        written.trigger(availableNow=True).start().awaitTermination()
    assert [field.dataType.simpleString() for field in results.schema["value"].dataType] == [
        spark.createDataFrame([], columns).select(F.struct("*")).schema[0].dataType.simpleString()
    ] * 2
    [row] = spark.table("typed_results").collect()
    assert row["key"].asDict() == {"key": "a", "day": date(2013, 1, 2)}
    assert tuple(row["value"]["stream"]) == tuple(row["value"]["table"]) == rows[0]
