"""Keys and values of DataFrames: the bytes that Spark makes of them, and the types that these get back."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructType

from tests.kernels.codecs.exact.exact_strategies import FIELDS, SCHEMA, objects
from tests.kernels.codecs.exact.test_exact_texts import DECODER
from tests.kernels.codecs.test_json_columns import decoded
from tidegate.application.frames.beginning import fields_of
from tidegate.application.frames.result_types import Results, TypedValues, values_of
from tidegate.contracts.values import Values, as_written, schema_of
from tidegate.expressions.column import quoted
from tidegate.expressions.layers import objects_of
from tidegate.operators.pipeline.config import PipelineRules
from tidegate.runtime.stream.columns import StreamColumns

pytestmark = pytest.mark.spark

TYPE = from_arrow_schema(SCHEMA, prefer_timestamp_ntz=True)
few = settings(max_examples=3, phases=[Phase.generate])
"""Each example is a job of Spark, so it has many rows."""
many_rows = st.lists(objects, min_size=20, max_size=60)


def frame(spark: Any, rows: Sequence[dict[str, Any]]) -> Any:
    """A DataFrame with the rows in its column `row`, and their places as `place`."""
    numbered = [(place, row) for place, row in enumerate(rows)]
    return spark.createDataFrame(numbered, StructType().add("place", LongType()).add("row", TYPE)).coalesce(1)


def texts_of(rows: Any) -> Any:
    """The columns with their decimals, dates and times as text of SQL: Python has no years before 1."""
    return rows.selectExpr("CAST(row AS STRING) AS text").collect()


SETTINGS = ("spark.sql.session.timeZone", "spark.sql.legacy.timeParserPolicy")


@pytest.fixture(
    scope="module", params=[("UTC", "CORRECTED"), ("Europe/Amsterdam", "CORRECTED"), ("Europe/Amsterdam", "LEGACY")]
)
def in_any_session(spark: Any, request: pytest.FixtureRequest) -> Any:
    """Runs tests in a session with these settings: in Amsterdam it was UTC+00:19:32 once."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, setting in zip(SETTINGS, request.param, strict=True):
        spark.conf.set(name, setting)
    yield
    for name, setting in before.items():
        spark.conf.set(name, setting)


@few
@given(rows=many_rows)
def test_steps_read_what_the_data_frame_has(spark: Any, in_any_session: None, rows: list[dict[str, Any]]) -> None:
    columns = StreamColumns(key=F.lit("k"), value="row", timestamp=F.lit(0), order_by="place")
    written = columns.records(frame(spark, rows)).sort("order_0").collect()
    assert schema_of(fields_of(TYPE)) == SCHEMA
    assert decoded(*(bytes(row["value"]) for row in written), decoder=DECODER) == [(row, None) for row in rows]


@few
@given(rows=many_rows)
def test_results_have_the_types_and_the_values_of_the_data_frame(
    spark: Any, in_any_session: None, rows: list[dict[str, Any]]
) -> None:
    written = objects_of(pa.RecordBatch.from_pylist(rows, SCHEMA)).values[0].to_pylist()
    emitted = spark.createDataFrame([(value.decode(),) for value in written], "value string").coalesce(1)
    for values in (TypedValues(TYPE, is_object=True), computed()):
        results = Results(None, values).typed(emitted).withColumnRenamed("value", "row")
        assert results.schema["row"].dataType == TYPE
        assert texts_of(results) == texts_of(frame(spark, rows))


ONCE = {"name": "once", "kind": "deduplicate", "within": "forever"}


def computed() -> TypedValues | None:
    """What is known of the results of a chain that computes each field."""
    steps = [{"select": {name: f'CASE WHEN true THEN "{name}" END' for name in FIELDS}}, ONCE]
    rules = PipelineRules.model_validate({"value": {"json": FIELDS}, "steps": steps})
    return values_of(rules, Values.of_fields(SCHEMA), TYPE, None)


NUMBERS = {"byte": ">h", "short": ">h", "int": ">i", "long": ">q"}
"""Spark's types of whole numbers, and what Kafka's serializers write of them."""


@few
@given(data=st.data())
def test_a_whole_number_is_a_key_of_kafka_s_serializers(spark: Any, data: st.DataObject) -> None:
    widths = {"byte": 1, "short": 2, "int": 4, "long": 8}
    for kind, written in NUMBERS.items():
        most = 2 ** (8 * widths[kind] - 1) - 1
        keys = [None, -1, 0, most, -most - 1, *data.draw(st.lists(st.integers(-most - 1, most), max_size=20))]
        rows = spark.createDataFrame(list(enumerate(keys)), f"place long, k {kind}").coalesce(1)
        columns = StreamColumns(key="k", value=F.lit(""), timestamp=F.lit(0), order_by="place")
        assert not columns.examined(rows)[1]
        found = [None if row["key"] is None else bytes(row["key"]) for row in columns.records(rows).collect()]
        assert found == [None if key is None else struct.pack(written, key) for key in keys]


@few
@given(rows=many_rows)
def test_a_struct_is_a_key_and_gets_its_type_back(spark: Any, in_any_session: None, rows: list[dict[str, Any]]) -> None:
    given_rows = frame(spark, rows)
    columns = StreamColumns(key="row", value=F.lit(""), timestamp=F.lit(0), order_by="place")
    assert not columns.examined(given_rows)[1]
    keys = columns.records(given_rows).select(F.col("key").cast("string").alias("key"))
    assert texts_of(Results(TYPE, None).typed(keys).withColumnRenamed("key", "row")) == texts_of(given_rows)
    distinct = {str([row[name] for name in sorted(row)]) for row in rows}
    assert keys.distinct().count() == len(distinct)


@pytest.mark.parametrize("kind", ["map<string,int>", "array<struct<x: map<int,int>>>", "struct<x: variant>"])
def test_an_order_by_what_has_no_order_is_refused(spark: Any, kind: str) -> None:
    rows = spark.createDataFrame([], f"k string, at long, unordered {kind}, ordered array<struct<x: binary>>")
    columns = StreamColumns(key="k", value=F.struct("*"), timestamp="at", order_by=["ordered", "unordered"])
    [problem] = columns.examined(rows)[1]
    assert (problem.where, problem.cause) == ("order_1", "rows cannot be sorted by maps and variants")
    columns = StreamColumns(key="k", value=F.struct("*"), timestamp="at", order_by="ordered")
    assert columns.prepared(rows, 1, 1).collect() == [], "Spark sorts by the others"


KEYS = {
    "int": "-1",
    "bigint": "9223372036854775807",
    "boolean": "true",
    "decimal(38,18)": "0.000000000000000001",
    "double": "1e300",
    "float": "0.1",
    "string": "'a.b'",
}
"""Types of keys of maps, each with a key."""


def test_maps_in_results_have_the_keys_of_the_data_frame(spark: Any) -> None:
    of_keys = [f"map(CAST({key} AS {kind}), array(map({key}, X'00'))) AS `{kind}`" for kind, key in KEYS.items()]
    rows = spark.sql(
        f"SELECT struct({', '.join(of_keys)}, map(1, NULL) AS `n``s`, CAST(NULL AS map<int,int>) AS n) AS s"
    )
    columns = StreamColumns(key=F.lit("k"), value="s", timestamp=F.lit(0), order_by=F.lit(0))
    types, problems = columns.examined(rows)
    emitted = columns.records(rows).select(F.col("value").cast("string").alias("value"))
    results = Results(None, TypedValues(types["value"], is_object=True)).typed(emitted)
    assert not problems
    assert [row["value"] for row in results.collect()] == [row["s"] for row in rows.collect()]
    assert results.schema["value"].dataType.simpleString() == types["value"].simpleString()


@pytest.mark.parametrize("key", ["binary", "date", "timestamp", "struct<x: int>", "array<int>", "interval day"])
def test_a_map_whose_keys_cannot_be_read_again_is_refused_with_its_place(spark: Any, key: str) -> None:
    rows = spark.createDataFrame([], f"k string, at long, s struct<good: map<int,int>, x: array<map<{key},int>>>")
    [problem] = StreamColumns(key="k", value=F.struct("*"), timestamp="at", order_by="at").examined(rows)[1]
    assert (problem.where, problem.value) == ("value", "s.x")
    assert "transform_keys" in str(problem.remedy)


NAMES = ["a.b", "ti`ck", 'q"q', "sp ace", "é", "_x"]


def test_computed_values_have_their_types_whatever_the_names_of_their_fields_are(spark: Any) -> None:
    fields = schema_of({name: {name: "int64"} for name in NAMES})
    steps = [{"select": {name: quoted(name) for name in NAMES}}]
    rules = PipelineRules.model_validate({"value": {"json": as_written(fields)}, "steps": [*steps, ONCE]})
    found = values_of(rules, Values.of_fields(fields), StructType(), None)
    row = {name: {name: 1} for name in NAMES}
    emitted = spark.createDataFrame([(json.dumps(row),)], "value string")
    [typed] = Results(None, found).typed(emitted).collect()
    assert typed["value"].asDict(recursive=True) == row


@pytest.mark.parametrize("kind", ["double", "date", "array<int>", "struct<x: double>", "struct<x: map<string,int>>"])
def test_a_key_whose_equal_values_may_have_other_bytes_is_refused_with_the_remedy(spark: Any, kind: str) -> None:
    rows = spark.createDataFrame([], f"k {kind}, at long")
    columns = StreamColumns(key="k", value=F.lit(""), timestamp="at", order_by="at")
    [problem] = columns.examined(rows)[1]
    assert problem.where == "key" and "F.struct" in str(problem.remedy)
