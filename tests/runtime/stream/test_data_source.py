"""`spark.read.format("tidegate")`: the views of a log without a file, as of a batch or a time, and what it reads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import tidegate as tg
import tidegate.spark
from tests.patience import PATIENCE_S
from tidegate.contracts.errors import UserError
from tidegate.runtime.spark.data_source import rows_of

pytestmark = pytest.mark.spark

PARTITIONS = 2
COLUMNS = "station string, wind long, at timestamp, arrival long"
BATCHES = [
    [("JFK", 10, 0, 1), ("LGA", 20, 0, 2), ("EWR", 30, 1, 3)],
    [("JFK", 11, 5, 4), ("LGA", 21, 9, 5), (None, 0, 9, 6)],
    [("JFK", 12, 50, 7), ("EWR", 32, 50, 8)],
]
"""Station, wind, minute and arrival; each list is a Spark batch of its own."""


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the table `weather`, the suppression `held`, and the pipeline `hourly`, of the same rows."""
    folder = tmp_path_factory.mktemp("reader")
    for batch in BATCHES:
        rows = [(station, wind, datetime(2013, 1, 1, 12, minute), number) for station, wind, minute, number in batch]
        spark.createDataFrame(rows, COLUMNS).coalesce(1).write.format("delta").mode("append").save(str(folder / "in"))
    tidegate.spark.register_format(spark)
    named = {"key": "station", "timestamp": "at", "order_by": "arrival"}

    def source() -> Any:
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder / "in"))

    stream = tidegate.spark.stream(source(), **named)
    chains = {
        "weather": tidegate.spark.table(source(), **named, history="10m"),
        "held": stream.suppress(tg.time_limit("5m")),
        "hourly": stream.filter("wind > 10")
        .window(tg.tumbling("10m", grace=0))
        .count(name="per_ten")
        .suppress(tg.window_close(), name="final"),
    }
    folders = {"lake": folder / "lake", "state": folder / "state", "partitions": PARTITIONS}
    for name, chain in chains.items():
        with chain.start(name, trigger={"availableNow": True}, **folders) as query:
            query.await_caught_up(f"{PATIENCE_S}s")
    return folder / "lake"


def read(spark: Any, lake: Path, name: str, **options: Any) -> Any:
    return spark.read.format("tidegate").options(**options).load(str(lake / name))


def test_outputs_and_state_equal_the_views(spark: Any, lake: Path) -> None:
    rules = tg.SuppressionRules(until={"time_limit": "5m"}, key_format="string", value_format="json")
    from tidegate.runtime.spark.views import register
    from tidegate.state.lake.place import Place

    register(spark, Place.of(lake / "held"), "held", rules)
    for view in ("emissions", "rejected"):
        found = read(spark, lake, "held", view=view)
        known = spark.table(f"held_{view}")
        shared = [column for column in known.columns if column in found.columns]
        assert {"key", "value", "timestamp", "event_time", "cause", "batch"} <= {*shared}
        assert sorted(found.select(shared).collect()) == sorted(known.select(shared).collect()) != []
    held = read(spark, lake, "held", view="state").select("key", "value", "timestamp")
    assert sorted(held.collect()) == sorted(spark.table("held_buffer").select(held.columns).collect()) != []


def test_a_history_is_read_as_of_a_time_by_the_rule_of_lookups(spark: Any, lake: Path) -> None:
    def winds(**options: Any) -> dict[str, int]:
        found = read(spark, lake, "weather", view="history", **options)
        return {
            row.key: row.wind for row in found.selectExpr("key", "get_json_object(value, '$.wind') AS wind").collect()
        }

    assert winds(asOf="2013-01-01T12:50:00") == {"JFK": "12", "LGA": "21", "EWR": "32"}
    assert winds(asOf="2013-01-01T14:45:00+02:00") == {"JFK": "11", "LGA": "21", "EWR": "30"}
    noon = round(datetime(2013, 1, 1, 12, tzinfo=UTC).timestamp() * 1_000)
    assert winds(asOf=noon, batch=1) == {"JFK": "10", "LGA": "20"}
    found = read(spark, lake, "weather", view="history").where("key = 'JFK' AND valid_to IS NULL").collect()
    assert [(row.valid_from, row.valid_to) for row in found] == [(datetime(2013, 1, 1, 12, 50), None)]


def test_a_batch_bounds_outputs_and_takes_the_state_back(spark: Any, lake: Path) -> None:
    # batch 0 is the claim; Spark's batches 0, 1 and 2 are the batches 1, 2 and 3
    held = [{row.key for row in read(spark, lake, "held", view="state", batch=batch).collect()} for batch in range(4)]
    assert held[:2] == [set(), {"JFK", "LGA", "EWR"}]
    by_batch = [read(spark, lake, "held", batch=batch).count() for batch in range(4)]
    assert by_batch[:2] == [0, 0] and by_batch[3] > by_batch[2]


def test_a_pipeline_is_read_step_by_step(spark: Any, lake: Path) -> None:
    windows = read(spark, lake, "hourly", view="state", step="per_ten").select("key", "window_start", "step").collect()
    assert windows and {row.step for row in windows} == {"per_ten"}
    assert {row.step for row in read(spark, lake, "hourly").collect()} == {"final"}
    assert {row.step for row in read(spark, lake, "hourly", view="state").collect()} == {"per_ten", "final"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "windows"}, "views: emissions, late, rejected, state; only a table has a history"),
        ({"view": "history", "step": "final"}, "only a table has a history"),
        ({"step": "last"}, "its steps are: per_ten, final"),
        ({"batch": "9"}, "its newest one is 3"),
        ({"batch": "-1"}, "write a whole number"),
        ({"asOf": "2013-01-01"}, "read the view history of a table"),
        ({"asOf": "noon"}, "write ms since the epoch"),
        ({"versionAsOf": "1"}, "options: path, view, step, batch, asOf, endpoint"),
        ({"endpoint": "http://127.0.0.1:9000"}, "a folder has no options"),
    ],
)
def test_an_error_names_what_there_is(lake: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        rows_of({"path": str(lake / "hourly"), **options})
    assert message in str(error.value)


def test_the_message_reaches_the_user_of_spark(spark: Any, lake: Path) -> None:
    with pytest.raises(PySparkException, match="name the folder <lake>/<operator> of a log"):
        read(spark, lake, "nothing").schema  # noqa: B018


def test_the_filter_of_one_query_bounds_no_other_of_the_same_data_frame(spark: Any, lake: Path) -> None:
    rows = read(spark, lake, "held")
    every = {(row.key, row.batch) for row in rows.collect()}
    chosen = {(row.key, row.batch) for row in rows.where("key = 'JFK' AND batch > 1").collect()}
    assert chosen == {each for each in every if each[0] == "JFK" and each[1] > 1} != set()
    assert {(row.key, row.batch) for row in rows.collect()} == every != chosen
