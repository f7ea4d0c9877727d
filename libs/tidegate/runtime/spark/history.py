"""Access to a table's history from PySpark programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.contracts.errors import UserError
from tidegate.operators.table_history import TableHistoryRules
from tidegate.operators.table_history.views import refuse_latest_values, rules_that_show, versions_as_of
from tidegate.runtime.spark.s3a import let_read
from tidegate.runtime.spark.typed_columns import register_functions
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import place_named
from tidegate.state.lake.port import Lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def history_as_of(
    spark: Any,
    table: str | Path,
    timestamp: datetime | int | Column,
    *,
    lake: str | Path | None = None,
    lake_options: Mapping[str, str] | None = None,
    rules: TableHistoryRules | None = None,
) -> DataFrame:
    """Return what was valid at that time: partition, key, value, valid_from, valid_to, at most one row per key.

    `table`: the folder or url of its log, or its name with the `lake`. `timestamp`: a time, ms since the epoch, or a
    column such as `F.expr("...")`. `lake_options`: how to reach a lake in an object store, as in configurations.

    `rules`: the table's configuration. With it, keys and values are decoded in its formats, and before T -
    history_retention only the newest version of a key is returned, as in lookups by a join. Without it, keys and values
    are bytes, and every version that is still in the log is returned where it was valid.

    Raise UserError if there is no log, if an option is unknown, or if the table keeps latest values only and so has no
    history.
    """
    from pyspark.sql import functions as F

    if rules is not None:
        refuse_latest_values(rules, table)
    place = place_named(table if lake is None else lake, lake_options)  # Java may have been started in another folder
    log = open_lake(place if lake is None else place / str(table))
    if not has_version(log, None):
        remedy = "name the folder of a table_history's log"
        raise UserError("there is no log of that table", value=log.place, remedy=remedy)
    let_read(spark, log.place)
    if rules is not None:
        register_functions(spark, rules.shown_formats())
    rows = spark.read.format("delta").load(log.place.for_spark)
    asked = F.lit(timestamp) if isinstance(timestamp, int) else F.unix_millis(F.lit(timestamp))
    retention_ms = None if rules is None else rules.history_retention
    found: DataFrame = versions_as_of(spark, rows, asked, rules or _rules_of(log), retention_ms)
    return found


def _rules_of(log: Lake) -> TableHistoryRules:
    newest = LogVersion.at(log, None).newest()
    return rules_that_show({} if newest is None else newest.settings)
