"""Chains on a streaming DataFrame: the methods of an application's streams, and a handle on Spark's query."""

from __future__ import annotations

import inspect
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

import tidegate as tg
import tidegate.spark
from tests.application.programs import application
from tests.patience import PATIENCE_S
from tidegate.contracts.errors import ConfigurationError, UserError

pytestmark = pytest.mark.spark

COLUMNS = "airport string, delay long, scheduled timestamp, arrival long"
PATIENCE = f"{PATIENCE_S}s"
NAMED = {"key": "airport", "timestamp": "scheduled", "order_by": "arrival"}


def at(hour: int, minute: int) -> datetime:
    return datetime(2013, 1, 1, hour, minute)


DEPARTURES = [
    ("JFK", 20, at(5, 15), 1),
    ("JFK", 5, at(5, 20), 2),
    ("JFK", 50, at(5, 30), 3),
    ("LGA", 50, at(5, 40), 4),
    (None, 50, at(5, 45), 5),
    ("JFK", 1, at(7, 30), 6),
    ("JFK", 40, at(5, 10), 7),
]
"""One partition has them in this order: the record of 7:30 closes the windows before, so the last one is late."""


@pytest.fixture(scope="module")
def departures(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A streaming DataFrame of the departures."""
    folder = str(tmp_path_factory.mktemp("input") / "departures")
    spark.createDataFrame(DEPARTURES, COLUMNS).coalesce(1).write.format("delta").save(folder)
    return spark.readStream.format("delta").load(folder)


@pytest.fixture
def folders(tmp_path: Any) -> dict[str, Any]:
    return {"lake": tmp_path / "lake", "state": tmp_path / "state", "partitions": 1}


def collected(spark: Any, rows: Any, *columns: str) -> list[tuple[Any, ...]]:
    """What a streaming DataFrame has, read to its present end."""
    name = f"collected_{id(rows)}"
    query = rows.select(*columns).writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return [tuple(row) for row in spark.table(name).collect()]


def test_a_chain_is_one_pipeline_and_its_handle_reads_what_it_does(
    spark: Any, departures: Any, folders: dict[str, Any]
) -> None:
    query = (
        tidegate.spark.stream(departures, **NAMED)
        .filter("delay > 10")
        .window(tg.tumbling("1h", grace="5m"))
        .aggregate(n=tg.count(), worst=tg.max("delay"), name="hourly")
        .suppress(tg.window_close(), name="final")
        .filter(tg.col("n") > 1)
        .start("storms", **folders)
    )
    with query:
        query.await_caught_up(PATIENCE)
        assert query.is_running and repr(query) == "<storms: running>"
        [row] = query.sql("SELECT key, value, window_end - window_start AS length FROM storms_emissions")
        assert (row["key"], json.loads(row["value"]), row["length"]) == ("JFK", {"n": 2, "worst": 50}, 3_600_000)
        assert collected(spark, query.emissions(), "key", "value") == [("JFK", row["value"])]
        assert collected(spark, query.late(), "key", "step", "source") == [("JFK", "hourly", 6)]
        assert collected(spark, query.rejected(), "cause") == [("null key",)]
        assert not query.sql("SELECT * FROM storms_final_buffer")
    assert not query.is_running and not query.query.isActive
    assert [row for row in spark.sql("SHOW TABLES").collect() if "followed" in row.tableName] == []


def test_branches_of_a_data_frame_meet_in_one_query(departures: Any, folders: dict[str, Any]) -> None:
    first = tidegate.spark.stream(departures, **NAMED).deduplicate(within="forever", name="first")
    long, short = first.filter("delay > 30").named("long"), first.filter("delay < 30").named("short")
    with long.merge(short).suppress(tg.max_keys(0, when_full="emit"), name="every").start("met", **folders) as query:
        query.await_caught_up(PATIENCE)
        found = query.sql("SELECT key, value, step FROM met_emissions")
        assert [(row["key"], json.loads(row["value"])["delay"], row["step"]) for row in found] == [
            ("JFK", 20, "every"),
            ("LGA", 50, "every"),
        ]


def test_only_branches_of_one_data_frame_meet_and_a_step_reads_them(departures: Any, folders: dict[str, Any]) -> None:
    one, other = (tidegate.spark.stream(departures, **NAMED).deduplicate(within="forever") for _ in range(2))
    with pytest.raises(ConfigurationError, match="it does not grow from the same stream"):
        one.merge(other).suppress(tg.max_keys(0, when_full="emit")).start("two", **folders)
    with pytest.raises(ConfigurationError, match="no step reads the merged rows"):
        one.merge(one.filter("delay > 30")).start("unread", **folders)


def test_every_kind_that_reads_one_input_runs_on_a_data_frame(departures: Any, folders: dict[str, Any]) -> None:
    stream = tidegate.spark.stream(departures, **NAMED, value="airport")
    weather = tidegate.spark.table(departures, **NAMED, value=F.struct("delay"), history="30d")
    queries = {
        "SELECT count(*) AS n FROM {0}_history WHERE key = 'JFK'": (weather, "history", 5),
        "SELECT count(*) AS n FROM {0}_emissions": (stream.deduplicate(within="forever"), "once", 2),
        "SELECT value AS n FROM {0}_windows WHERE key = 'LGA'": (
            stream.window(tg.hopping("1h", advance="1h", grace=0)).count(),
            "hourly",
            "1",
        ),
        "SELECT count(*) AS n FROM {0}_buffer": (stream.suppress(tg.max_keys(9, when_full="emit")), "held", 2),
        "SELECT key AS n FROM {0}_rejected": (
            stream.apply(tg.SuppressionRules(until={"time_limit": "1s"})),
            "rules",
            None,
        ),
    }
    for text, (chain, name, expected) in queries.items():
        with chain.start(name, trigger={"availableNow": True}, **folders) as query:
            query.await_caught_up(PATIENCE)
            assert [row["n"] for row in query.sql(text.format(name))] == [expected]


def test_starting_a_name_again_stops_the_query_that_has_it(departures: Any, folders: dict[str, Any]) -> None:
    chain = tidegate.spark.stream(departures, **NAMED).deduplicate(within="forever")
    first = chain.start("once", **folders)
    first.await_caught_up(PATIENCE)
    with chain.start("once", **folders) as second:
        assert not first.is_running and second.is_running
        second.await_caught_up(PATIENCE)
        assert len(second.sql("SELECT * FROM once_emissions")) == 2


def test_fields_have_the_types_of_the_columns(spark: Any, tmp_path: Any, folders: dict[str, Any]) -> None:
    row = spark.sql(
        """SELECT -5S AS k, TIMESTAMP '2013-01-01 05:15:00' AS at, true AS b, 1Y AS i8, 2S AS i16, 3 AS i32, 4L AS i64,
                  CAST(1.5 AS FLOAT) AS f32, 2.5D AS f64, 'x' AS s, named_struct('n', 5L, 's', 'y') AS inner,
                  array(1, 2) AS many, CAST(1.25 AS DECIMAL(5, 2)) AS exact, X'01' AS raw, DATE '2013-01-02' AS day,
                  TIMESTAMP_NTZ '0001-01-01 00:00:00' AS local, CAST(null AS BIGINT) AS missing"""
    )
    row.write.format("delta").save(str(tmp_path / "input"))
    rows = spark.readStream.format("delta").load(str(tmp_path / "input"))
    names = ("at", "b", "i8", "i16", "i32", "i64", "f32", "f64", "s", "many", "exact", "raw", "day", "local", "missing")
    chain = (
        tidegate.spark.stream(rows, key="k", timestamp="at", order_by="at")
        .filter('day = "at"::date + 1 and exact < 1.26 and local < "at" and key < 0')
        .select(**{name: f'"{name}"' for name in names}, inside=tg.col("inner.n") + 1, more="exact * 2")
        .deduplicate(within="forever")
    )
    with chain.start("typed", trigger={"availableNow": True}, **folders) as query:
        query.await_caught_up(PATIENCE)
        [emitted] = query.sql("SELECT key, value FROM typed_emissions")
        results = query.results().select("key", "value.*")
        [typed] = collected(spark, results, *results.columns)
    assert {field.name: field.dataType.simpleString() for field in results.schema} == {
        field.name: field.dataType.simpleString() for field in rows.schema if field.name in names
    } | {"key": "smallint", "inside": "bigint", "more": "decimal(15,2)"}
    assert typed[0] == emitted["key"] == -5
    assert dict(zip(results.columns, typed, strict=True)) | {"key": None} == row.select(*names).first().asDict() | {
        "key": None,
        "inside": 6,
        "more": Decimal("2.50"),
    }
    found = json.loads(emitted["value"])
    assert found == {
        "at": "2013-01-01T05:15:00.000000Z",
        "b": True,
        "i8": 1,
        "i16": 2,
        "i32": 3,
        "i64": 4,
        "f32": 1.5,
        "f64": 2.5,
        "s": "x",
        "many": "[1,2]",
        "exact": 1.25,
        "raw": "AQ==",
        "day": "2013-01-02",
        "local": "0001-01-01T00:00:00.000000",
        "missing": None,
        "inside": 6,
        "more": 2.5,
    }


def problems(begin: Any) -> dict[str, tuple[object, str]]:
    """Value and cause of each problem, by its place."""
    with pytest.raises(ConfigurationError) as refused:
        begin()
    return {problem.where: (problem.value, problem.cause) for problem in refused.value.problems}


def line(function: Any, text: str) -> int:
    """The line of this file at which the function has the text."""
    source, first = inspect.getsourcelines(function)
    [found] = [first + number for number, each in enumerate(source) if text in each and "line(" not in each]
    return found


def test_all_problems_of_a_chain_and_its_start_come_at_once_each_with_its_line(spark: Any, departures: Any) -> None:
    def begin() -> None:
        (
            tidegate.spark.stream(departures, key="airprot", timestamp="delay", order_by="arival")
            .filter("dealy > 10")
            .window(tg.tumbling("1h", grace="soon"))
            .aggregate(lambda values: values)
            .start("storms of the year", lake="lake", partitions=0)
        )

    here = test_all_problems_of_a_chain_and_its_start_come_at_once_each_with_its_line
    verbs = ("stream", "filter", "window", "aggregate", "start")
    places = {verb: f"test_chains.py:{line(here, f'.{verb}(')} .{verb}()" for verb in verbs}
    found = problems(begin)
    assert found.pop(f"{places['aggregate']}, aggregate")[1] == "Spark's Python workers cannot import it"
    assert found.pop(places["filter"])[1] == "no column dealy (dealy > 10)"
    assert {where: value for where, (value, _) in found.items()} == {
        f"{places['stream']}, key": "airprot",
        f"{places['stream']}, order_0": "arival",
        f"{places['window']}, window.grace": "soon",
        f"{places['start']}, name": "storms of the year",
        f"{places['start']}, partitions": 0,
    }
    assert found[f"{places['stream']}, key"][1] == "the DataFrame has no such column"


def test_a_frame_that_is_no_stream_and_a_value_of_unknown_type_hide_what_follows_from_them(spark: Any) -> None:
    rows = spark.createDataFrame(DEPARTURES, COLUMNS)
    found = problems(
        lambda: (
            tidegate.spark.stream(rows, **{**NAMED, "value": "vaule"})
            .filter("delay > 10")
            .deduplicate(within="forever")
            .start("once", lake="lake")
        )
    )
    assert [cause for _, cause in found.values()] == [
        "the DataFrame is not a stream",
        "the DataFrame has no such column",
    ]


def test_what_belongs_to_topics_and_what_belongs_to_data_frames_name_each_other(departures: Any) -> None:
    on_frame = tidegate.spark.stream(departures, **NAMED).deduplicate(within="forever")
    with pytest.raises(UserError, match="writes to no topic") as refused:
        on_frame.to("once")
    assert ".start(" in refused.value.remedy and "test_chains.py" in str(refused.value.value)
    with pytest.raises(UserError, match="has one output") as refused:
        on_frame.keep()
    assert ".start(" in refused.value.remedy
    on_topic = application().stream("departures", name="once").deduplicate(within="forever")
    with pytest.raises(UserError, match="start together") as refused:
        on_topic.start("once", lake="lake")
    assert "app.start()" in refused.value.remedy and "test_chains.py" in str(refused.value.value)


def test_a_trigger_that_spark_does_not_have_is_refused_before_anything_is_written(
    departures: Any, folders: dict[str, Any]
) -> None:
    chain = tidegate.spark.stream(departures, **NAMED).deduplicate(within="forever")
    for wrong in ({"availableNow": False}, {"processingTime": "often"}, {"every": "10 seconds"}):
        with pytest.raises(UserError, match="not a trigger") as refused:
            chain.start("once", trigger=wrong, **folders)
        assert refused.value.value == wrong and "availableNow" in refused.value.remedy
    assert not folders["lake"].exists()


def test_a_query_is_text(departures: Any, folders: dict[str, Any]) -> None:
    chain = tidegate.spark.stream(departures, **NAMED).deduplicate(within="forever")
    with chain.start("once", **folders) as query, pytest.raises(UserError, match="a query is text"):
        query.sql(5)  # type: ignore[arg-type]
