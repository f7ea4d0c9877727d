"""The stream-table join on batch DataFrames, in Spark's own operations.

Stream rows and table versions of a key are sorted together by time; each row takes the last version at or before it.
Both sides are sorted once and no row is multiplied, however many versions a key has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tidegate.contracts.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ADDED = ("table_value", "valid_from", "status")

_VERSION, _RECORD = 0, 1
"""Sort order at equal times: the version comes before the record, because it is valid from that time on."""

_MATCHED = "met IS NOT NULL AND time IS NOT NULL AND (met.valid_to IS NULL OR time < met.valid_to)"


def asof_join(
    stream_df: DataFrame,
    history_df: DataFrame,
    *,
    key: str,
    timestamp: str,
    how: Literal["inner", "left"] = "inner",
) -> DataFrame:
    """Join each row of the stream with the table version that was valid at the row's time.

    The result is that of the stream-table join operator with a sufficient grace period.

    `history_df`: rows as in the view `<table>_history` (key, value, valid_from, valid_to). `key`, `timestamp`: columns
    of the stream; the time is a timestamp or an integer in ms. The columns table_value, valid_from and status
    (`matched`, `unmatched`) are added; `inner` drops unmatched rows. A row whose key or time is null is unmatched.

    Raises UserError if a column is missing on either side, if the stream already has a column that the join adds, or if
    the history's keys are windowed.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    _check(stream_df, history_df, key, timestamp, how)
    versions = history_df.where("key IS NOT NULL").select(
        F.col("key").cast(stream_df.schema[key].dataType),
        F.col("valid_from").alias("time"),
        F.lit(_VERSION).alias("side"),
        F.struct("value", "valid_from", "valid_to").alias("version"),
    )
    records = stream_df.select(
        _column(key).alias("key"),
        _time(stream_df, timestamp).alias("time"),
        F.lit(_RECORD).alias("side"),
        F.struct("*").alias("record"),
    )
    so_far = Window.partitionBy("key").orderBy("time", "side").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    met = (
        versions.unionByName(records, allowMissingColumns=True)
        .withColumn("met", F.last("version", ignorenulls=True).over(so_far))
        .where(F.col("side") == _RECORD)
        .withColumn("matched", F.expr(_MATCHED))
    )
    return (met.where("matched") if how == "inner" else met).selectExpr(
        "record.*",
        "CASE WHEN matched THEN met.value END AS table_value",
        "CASE WHEN matched THEN met.valid_from END AS valid_from",
        "CASE WHEN matched THEN 'matched' ELSE 'unmatched' END AS status",
    )


def _check(stream_df: DataFrame, history_df: DataFrame, key: str, timestamp: str, how: str) -> None:
    if how not in ("inner", "left"):
        raise UserError("no such join", value=how, remedy="write how='inner' or how='left'")
    for name in (key, timestamp):
        if name not in stream_df.columns:
            raise UserError("the stream has no such column", value=name, remedy=f"it has {_listed(stream_df.columns)}")
    if missing := {"key", "value", "valid_from", "valid_to"} - set(history_df.columns):
        remedy = "give the rows of <table>_history, or columns named like its"
        raise UserError("the history lacks columns", value=_listed(sorted(missing)), remedy=remedy)
    if "window_start" in history_df.columns:
        remedy = "choose one window's rows and drop window_start and window_end, or let a join operator look them up"
        raise UserError("the history's keys are of windows", value="window_start, window_end", remedy=remedy)
    if taken := set(ADDED) & set(stream_df.columns):
        remedy = "rename them: the join adds columns of these names"
        raise UserError("the stream has columns of the result", value=_listed(sorted(taken)), remedy=remedy)


def _listed(names: list[str]) -> str:
    return ", ".join(names)


def _time(stream_df: DataFrame, name: str) -> Column:
    """Return the column as a timestamp."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegralType

    whole_ms = isinstance(stream_df.schema[name].dataType, IntegralType)
    return F.timestamp_millis(_column(name)) if whole_ms else _column(name).cast("timestamp")


def _column(name: str) -> Column:
    """Return the column with exactly this name, even if the name contains dots."""
    from pyspark.sql import functions as F

    from tidegate.runtime.spark.queries import quoted

    return F.col(quoted(name))
