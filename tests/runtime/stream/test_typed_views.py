"""Views of numbers and Avro have typed columns: in Spark SQL, through the format, and in DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import tidegate as tg
import tidegate.spark
from tests.docs.pages import DOCS, blocks
from tests.kernels.codecs.avro_strategies import written
from tidegate.operators.pipeline.config import PipelineRules
from tidegate.runtime.spark.views import query
from tidegate.state.lake.place import Place

pytestmark = pytest.mark.spark

INNER = {"type": "record", "name": "Weather", "fields": [{"name": "gust", "type": "double"}]}
FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "delay", "type": "int"}, {"name": "weather", "type": ["null", INNER]}],
}
COUNT = {
    "type": "record",
    "name": "Count",
    "fields": [{"name": "n", "type": "int"}, {"name": "worst", "type": ["null", "double"]}],
}
STEPS: list[dict[str, Any]] = [
    {"filter": "delay > 0"},
    {"name": "held", "kind": "suppression", "until": {"time_limit": "1m"}},
    {"select": {"n": "delay", "worst": "weather.gust"}},
    {"encode": {"avro": {"schema": COUNT, "number": 42}}},
]
RESULTS, HELD = ("key", "value.n", "value.worst"), ("key", "value.delay", "value.weather.gust")


def flight(delay: int, gust: float | None) -> bytes:
    return written(FLIGHT, {"delay": delay, "weather": None if gust is None else {"gust": gust}}, 17)


def test_spark_sql_the_format_and_duckdb_show_the_same_typed_columns(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first two rows are emitted as the third one passes their time limit; it is held, and the last is rejected."""
    (tmp_path / "17.avsc").write_text(json.dumps(FLIGHT))
    rows = [(1, flight(15, 40.5), 0), (-2, flight(6, None), 1), (3, flight(7, 1.5), 90_000), (4, b"junk", 90_001)]
    given = [(key.to_bytes(4, "big", signed=True), value, at) for key, value, at in rows]
    frame = spark.createDataFrame(given, "key binary, value binary, at long").coalesce(1)
    frame.write.format("delta").save(str(tmp_path / "in"))
    value = {"avro": {"schema": FLIGHT, "schemas": str(tmp_path)}}
    rules = PipelineRules(key="int32", value=value, steps=STEPS)
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
    log = tmp_path / "lake" / "late"

    def of_sql(view: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        text = f"SELECT {', '.join(columns)} FROM {view} WHERE {columns[1]} < 100 ORDER BY key"
        found = query(spark, Place.of(tmp_path / "lake"), {"late": rules}, text)
        return [tuple(row.values()) for row in found.to_pylist()]

    def of_format(columns: tuple[str, ...], **options: str) -> list[tuple[Any, ...]]:
        frame = spark.read.format("tidegate").options(**options).load(str(log))
        return [tuple(row) for row in frame.selectExpr(*columns).sort("key").collect()]

    def of_duckdb(columns: tuple[str, ...], **options: Any) -> list[tuple[Any, ...]]:
        shown = duckdb.from_arrow(tg.read_log(log, **options))
        return shown.select(", ".join(columns)).order("key").fetchall()

    held = {"view": "state", "step": "held"}
    assert of_sql("late_emissions", RESULTS) == [(-2, 6, None), (1, 15, 40.5)]
    assert of_format(RESULTS) == of_duckdb(RESULTS) == [(-2, 6, None), (1, 15, 40.5)]
    assert of_sql("late_held_buffer", HELD) == [(3, 7, 1.5)]
    assert of_format(HELD, **held) == of_duckdb(HELD, **held) == [(3, 7, 1.5)]
    [refused] = spark.sql("SELECT key, value, cause FROM late_rejected").collect()
    assert (bytes(refused.key), bytes(refused.value), refused.cause) == (b"\0\0\0\4", b"junk", "value: names no schema")
    rejected = tg.read_log(log, view="rejected").read_all()
    assert (rejected["key"].to_pylist(), rejected["value"].to_pylist()) == ([b"\0\0\0\4"], [b"junk"])

    [*_, page] = [block.text for block in blocks(DOCS / "how-to" / "avro.md") if block.language == "python"]
    monkeypatch.chdir(tmp_path)
    exec(page, {})
    assert "40.5" in capsys.readouterr().out
