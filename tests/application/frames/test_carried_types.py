"""Fields of a DataFrame that steps pass on have their types and values in the results, also those that JSON has not."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StringType, StructType

from tidegate.application.frames.beginning import fields_of
from tidegate.application.frames.result_types import Results, as_written, values_of
from tidegate.contracts.records import Row
from tidegate.contracts.values import TYPES, Values, schema_of
from tidegate.expressions.column import quoted
from tidegate.operators.pipeline.config import PipelineConfig, PipelineRules
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Partition
from tidegate.runtime.stream.columns import StreamColumns

pytestmark = pytest.mark.spark

COLUMNS = {
    "dec": "CAST(1234567890.123456789012345678 AS decimal(38,18))",
    "d38": "CAST(0.00000000000000000000000000000000000001 AS decimal(38,38))",
    "f": "CAST('Infinity' AS float)",
    "at": "TIMESTAMP '1890-06-01 00:00:00.000001'",
    "ntz": "TIMESTAMP_NTZ '0001-01-01 00:00:00.000001'",
    "bin": "X'00ff10'",
    "arr": "array(CAST(1234567890.123456789012345678 AS decimal(38,18)), NULL)",
    "m": "map(1, array(X'01'), 2, NULL)",
    "iv": "INTERVAL '1' DAY",
    "st": "struct(array(map(true, DATE '2013-01-01')) AS x, struct(CAST(NULL AS string) AS z) AS y)",
    "a.b": "CAST(0.1 AS float)",
    "n": "1",
}
"""Values, by the names of their columns."""
ONCE = {"name": "once", "kind": "deduplicate", "within": "forever"}
ALL = {name: quoted(name) for name in COLUMNS}
WINDOW = {"name": "w", "kind": "windowed_aggregation", "window": {"tumbling": "1h", "grace": "1s"}, "emit": "updates"}


@pytest.fixture(scope="module")
def given(spark: Any) -> Any:
    """A DataFrame with a struct of all columns as `row`, and the same with nulls."""
    values = ", ".join(f"{text} AS `{name}`" for name, text in COLUMNS.items())
    row = spark.sql(f"SELECT struct({values}) AS row")
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in row.schema["row"].dataType.fields]
    return row.union(row.select(F.struct(*nulls).alias("row")))


def results(spark: Any, given: Any, *steps: dict[str, Any]) -> Any:
    """The typed values that the steps make of both rows."""
    columns = StreamColumns(key=F.lit("k"), value="row", timestamp=F.lit(0), order_by=F.lit(0))
    texts = [bytes(row["value"]) for row in columns.records(given).collect()]
    kind = given.schema["row"].dataType
    fields = fields_of(kind)
    described = {"value": {"json": fields}, "steps": [*steps]}
    partition = Partition(operator_for(PipelineConfig.model_validate({"input": "in", **described})), 0)
    partition.play([Row(b"%d" % at, text, 0, at) for at, text in enumerate(texts)])
    assert not partition.trace.rejected
    emitted = [(row["value"].decode(),) for row in partition.trace.emissions]
    found = values_of(PipelineRules.model_validate(described), Values.of_fields(schema_of(fields)), kind, None)
    return Results(None, found).typed(spark.createDataFrame(emitted, "value string").coalesce(1))


def assert_equal(found: Any, expected: Any) -> None:
    """Check that both have the same types, but for what may be null, and the same values."""
    assert found.schema["value"].dataType.simpleString() == expected.schema["value"].dataType.simpleString()
    assert [row["value"] for row in found.collect()] == [row["value"] for row in expected.collect()]


@pytest.mark.parametrize(
    "steps",
    [
        [{"with_columns": {"n": "n + 0"}}],
        [{"select": ALL}],
        [{"with_columns": ALL}, ONCE, {"select": ALL}],
        [{"filter": "true"}, {"select": ALL}, ONCE, {"with_columns": {"n": "n * 1"}}],
    ],
)
def test_fields_that_no_expression_computes_come_back_as_they_are(spark: Any, given: Any, steps: Any) -> None:
    assert_equal(results(spark, given, *steps, ONCE | {"name": "last"}), given.withColumnRenamed("row", "value"))


def test_the_name_of_a_field_is_no_computation(spark: Any, given: Any) -> None:
    steps = [{"select": {"arr": "m", "inner": "st.x", "st": "ST.y", "other": '"a.b" * 2'}}, ONCE]
    chosen = F.struct(
        F.col("row.m").alias("arr"),
        F.col("row.st.x").alias("inner"),
        F.col("row.st.y").alias("st"),
        (F.col("row.`a.b`") * F.lit(2).cast("float")).alias("other"),
    )
    assert_equal(results(spark, given, *steps), given.select(chosen.alias("value")))


def test_the_first_and_the_last_value_of_a_field_have_its_type(spark: Any, given: Any) -> None:
    known = given.where("row.n IS NOT NULL")  # aggregates reject nulls
    chosen = {name: {"last" if at % 2 else "first": {"field": name}} for at, name in enumerate(COLUMNS)}
    for aggregate, steps, expected in (
        (chosen, [], "row"),
        ({"x": {"last": {"field": "a"}}}, [{"select": {"a": "arr"}}], "struct(row.arr AS x)"),
        ({"last": {"field": "m"}}, [], "row.m"),
    ):
        found = results(spark, known, *steps, WINDOW | {"aggregate": aggregate})
        assert_equal(found, known.selectExpr(f"{expected} AS value"))


def test_fields_of_both_sides_of_a_join_have_their_types(spark: Any, given: Any) -> None:
    kind, fields = given.schema["row"].dataType, fields_of(given.schema["row"].dataType)
    table = {"name": "t", "kind": "table_history", "history_retention": "1d"}
    join = {"name": "j", "kind": "stream_table_join", "table": "t", "join": "left", "emits": fields}
    before = Values.of_fields(schema_of(fields))

    def type_behind(*steps: dict[str, Any]) -> str:
        raw = {"value": {"json": fields}, "table": table, "steps": [join, *steps]}
        found = values_of(PipelineRules.model_validate(raw), before, kind, kind)
        assert found is not None
        return found.type.simpleString()

    same = kind.simpleString()
    assert type_behind() == f"struct<stream:{same},table:{same}>"
    assert type_behind({"with_columns": {"n": "t.n + 1", "m": "t.arr"}}) == (
        same.replace("m:map<int,array<binary>>", "m:array<decimal(38,18)>").replace(",n:int>", f",n:int,t:{same}>")
    )
    bare = {"value": {"json": fields}, "table": table, "steps": [{k: v for k, v in join.items() if k != "emits"}]}
    found = values_of(PipelineRules.model_validate(bare), before, kind, None)
    assert found is not None
    assert found.type.simpleString() == f"struct<stream:{same},table:string>"
    assert type_behind({"select": {"both": "t", "x": "t.st.x"}}) == f"struct<both:{same},x:array<map<boolean,date>>>"


def test_fields_that_are_computed_have_the_types_of_their_expressions(spark: Any, given: Any) -> None:
    computed = {"arr": "arr || ''", "dec": "dec * 2", "at": '"at" + INTERVAL 1 DAY', "bin": "upper(bin)"}
    found = results(spark, given, {"with_columns": computed}, ONCE).select("value.*")
    types = {name: kind for name, kind in found.dtypes if name in computed}
    assert types == {"arr": "string", "dec": "decimal(38,18)", "at": "timestamp", "bin": "string"}
    assert found.first()["arr"] == "[1234567890.123456789012345678,null]"


@pytest.mark.fast
def test_only_what_has_no_type_in_json_is_a_string_behind_an_expression() -> None:
    array, known = ArrayType(DecimalType(9, 2)), TYPES["string"]
    assert as_written(array, known) == StringType()
    assert as_written(array, TYPES["json"]) == array
    assert as_written(IntegerType(), TYPES["int32"]) == IntegerType()
    inside = StructType().add("x", array)
    assert as_written(inside, schema_of({"s": {"x": "string"}}).field("s").type) == StructType().add("x", "string")
