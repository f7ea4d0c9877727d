"""Views of numbers and Avro have typed columns: in Spark SQL, through the format, and in DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import tidegate as tg
import tidegate.spark
from tests.kernels.codecs.avro_strategies import written
from tidegate.operators.pipeline.config import PipelineRules
from tidegate.runtime.spark.views import query

pytestmark = pytest.mark.spark

INNER = {"type": "record", "name": "Weather", "fields": [{"name": "gust", "type": "double"}]}
FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "delay", "type": "int"}, {"name": "weather", "type": ["null", INNER]}],
}
HELD = {"name": "held", "kind": "suppression", "until": {"time_limit": "1m"}}
NAMES = "key, value.delay, value.weather.gust"


def flight(delay: int, gust: float | None) -> bytes:
    return written(FLIGHT, {"delay": delay, "weather": None if gust is None else {"gust": gust}}, 17)


def test_spark_sql_the_format_and_duckdb_show_the_same_typed_columns(spark: Any, tmp_path: Path) -> None:
    """The first two rows are emitted as the third one passes their time limit; it is held, and the last is rejected."""
    (tmp_path / "17.avsc").write_text(json.dumps(FLIGHT))
    rows = [(1, flight(5, 40.5), 0), (-2, flight(6, None), 1), (3, flight(7, 1.5), 90_000), (4, b"junk", 90_001)]
    found = [(key.to_bytes(4, "big", signed=True), value, at) for key, value, at in rows]
    frame = spark.createDataFrame(found, "key binary, value binary, at long").coalesce(1)
    frame.write.format("delta").save(str(tmp_path / "in"))
    value = {"avro": {"schema": FLIGHT, "schemas": str(tmp_path)}}
    rules = PipelineRules(key="int32", value=value, steps=[{"filter": "delay > 0"}, HELD])
    tidegate.spark.start(
        spark.readStream.format("delta").load(str(tmp_path / "in")),
        rules,
        key="key",
        value="value",
        timestamp="at",
        order_by="at",
        partitions=1,
        lake=tmp_path / "lake",
        state=tmp_path / "state",
        name="late",
        trigger={"availableNow": True},
    ).awaitTermination()
    tidegate.spark.register_format(spark)
    place, emitted, waiting = tmp_path / "lake" / "late", [(-2, 6, None), (1, 5, 40.5)], [(3, 7, 1.5)]

    from tidegate.state.lake.place import Place

    def of_sql(view: str) -> list[tuple[Any, ...]]:
        text = f"SELECT {NAMES} FROM {view} WHERE value.delay < 100 ORDER BY key"
        return [
            tuple(row.values()) for row in query(spark, Place.of(tmp_path / "lake"), {"late": rules}, text).to_pylist()
        ]

    def of_format(**options: str) -> list[tuple[Any, ...]]:
        frame = spark.read.format("tidegate").options(**options).load(str(place))
        return [
            tuple(row) for row in frame.selectExpr("key", "value.delay", "value.weather.gust").sort("key").collect()
        ]

    def of_duckdb(**options: Any) -> list[tuple[Any, ...]]:
        shown = duckdb.from_arrow(tg.read_log(place, **options))
        return shown.select("key, value.delay, value.weather.gust").order("key").fetchall()

    assert of_sql("late_emissions") == of_format() == of_duckdb() == emitted
    assert of_sql("late_held_buffer") == of_format(view="state", step="held") == waiting
    assert of_duckdb(view="state", step="held") == waiting
    [refused] = spark.sql("SELECT key, value, cause FROM late_rejected").collect()
    assert (bytes(refused.key), bytes(refused.value), refused.cause) == (b"\0\0\0\4", b"junk", "value: names no schema")
    rejected = tg.read_log(place, view="rejected").read_all()
    assert (rejected["key"].to_pylist(), rejected["value"].to_pylist()) == ([b"\0\0\0\4"], [b"junk"])
