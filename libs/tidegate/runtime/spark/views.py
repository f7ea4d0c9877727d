"""The Spark SQL views of operators: over a log as it is or was, and over the rows that a log still receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from warnings import warn

from tidegate.contracts.config.rules import OperatorRules
from tidegate.operators.registry import kind_of
from tidegate.operators.views import deprecations, register_log, register_outputs
from tidegate.runtime.spark.s3a import let_read
from tidegate.runtime.spark.typed_columns import register_functions
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def query(
    spark: Any, lake: Place, operators: Mapping[str, OperatorRules], text: str, version: int | None = None
) -> pa.Table:
    """Return the result of the Spark SQL query, an Arrow table, with the views of every operator registered.

    Columns of equal names get a number: `key`, `key_2`. Warn of deprecated views in the query. Raise UserError, which
    names the views, if Spark cannot run the query; also for a statement that changes something, such as INSERT or
    DROP, which then does not run.
    """
    from tidegate.runtime.spark.queries import rows_of

    for line in deprecations(text, operators):
        warn(line, FutureWarning, stacklevel=2)
    views = [view for name, rules in operators.items() for view in register(spark, lake / name, name, rules, version)]
    named = ", ".join(views) or "none: no operator of the file has a log of that version"
    return rows_of(spark, text, f"the views are: {named}")


def register(spark: Any, log: Place, name: str, rules: OperatorRules, version: int | None = None) -> list[str]:
    """Register the views of an operator, and return their names; none if its log does not exist.

    With a version, views show the log as of it; if there is no such version, there are no views.
    """
    if not has_version(open_lake(log), version):
        return []
    let_read(spark, log)
    register_log(spark, name, log.for_spark, version)
    return [f"{name}_log", *_register_views(spark, name, rules)]


def _register_views(spark: Any, name: str, rules: OperatorRules) -> list[str]:
    register_functions(spark, rules.shown_formats())
    return [*register_outputs(spark, name, rules), *kind_of(rules.kind).register_views(spark, name, rules)]


def following(spark: Any, log: Place, name: str, rules: OperatorRules, view: str) -> DataFrame:
    """Return the rows of a view, such as `emissions`, as a streaming DataFrame: those that are there, then new ones.

    Each row comes once, across compactions too.
    """
    let_read(spark, log)
    prefix = f"{name}_followed"
    spark.readStream.format("delta").load(log.for_spark).createOrReplaceTempView(f"{prefix}_log")
    views = _register_views(spark, prefix, rules)
    rows = spark.table(f"{prefix}_{view}")
    for each in [*views, f"{prefix}_log"]:
        spark.catalog.dropTempView(each)
    return rows
