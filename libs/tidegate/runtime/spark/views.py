"""The SQL views that every operator has.

Views are temporary and named after the operator: `<operator>_log` is the raw log, the others show what people ask for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.contracts.config import Format, KeyRules, OperatorRules

_SHOWN_AS: dict[Format, str] = {"bytes": "{0}", "string": "CAST({0} AS STRING)", "json": "CAST({0} AS STRING)"}
_LAST_MS = 2**63 // 1_000
_YEAR_2_MS, _YEAR_9999_MS = -62_104_060_800_000, 253_370_764_800_000
"""Between these Python has a time in every time zone."""


def register_log(spark: Any, name: str, path: Path, version: int | None) -> None:
    """The view `<name>_log` shows the operator log, as of a version if one is given."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    reader.load(str(path)).createOrReplaceTempView(f"{name}_log")


def register_outputs(spark: Any, name: str, config: OperatorRules) -> list[str]:
    """The views over `<name>_log` that all operators have: `<name>_emissions`, `<name>_late`, `<name>_rejected` and
    `<name>_refused_counts`; gives their names.

    Of a refused record, `topic` and `offset` say where it was read, `timestamp` (ms) and `event_time` its time (null
    if no calendar has it), `bound` (ms) and `bound_time` the time that it missed, `lateness` (ms) by how much stream
    time was ahead of it.
    """
    times = f"{_as_calendar_time('timestamp')} AS event_time, {_as_calendar_time('bound')} AS bound_time"
    return [
        register_emissions(spark, name, config),
        _register(spark, f"{name}_late", name, config, "late", f"topic, lateness, bound, {times}"),
        _register(spark, f"{name}_rejected", name, config, "rejected", f"topic, bound, {times}"),
        _register_counts(spark, name),
    ]


def _register_counts(spark: Any, name: str) -> str:
    """The view `<name>_refused_counts` shows how many records the log has that were refused, by kind and cause."""
    times = ", ".join(f"{end}({_as_calendar_time('timestamp')}) AS {end}_event_time" for end in ("min", "max"))
    return create_view(
        spark,
        f"{name}_refused_counts",
        f"""SELECT kind, cause, count(*) AS records, {times}, max(lateness) AS max_lateness
            FROM {name}_log WHERE kind IN ('late', 'rejected') GROUP BY kind, cause""",
    )


def register_emissions(spark: Any, name: str, config: OperatorRules, *more: str) -> str:
    """The view `<name>_emissions` shows what an operator emitted, with more columns if it has them; gives its name."""
    columns = ", ".join([f"{as_time('timestamp')} AS event_time", *more])
    return _register(spark, f"{name}_emissions", name, config, "emission", columns)


def shown_columns(config: OperatorRules) -> tuple[str, str]:
    """The SQL expressions that show key and value in the configured formats."""
    return _SHOWN_AS[config.key_format].format("key"), _SHOWN_AS[config.value_format].format("value")


def window_names(config: KeyRules) -> tuple[str, ...]:
    """Return the columns that, with the key, say what a key is under the configuration: its window's, if it has one."""
    return ("window_start", "window_end") if config.windowed else ()


def window_columns(config: KeyRules) -> str:
    """Return the same columns as they are written behind `key`."""
    return "".join(f", {name}" for name in window_names(config))


def as_time(milliseconds: str) -> str:
    """The SQL expression of the time that a column says in ms; what lies after Spark's last time is shown as that."""
    return f"timestamp_millis(if({milliseconds} > {_LAST_MS}, {_LAST_MS}, {milliseconds}))"


def _as_calendar_time(milliseconds: str) -> str:
    """The same of a column that may hold anything: null for what no calendar has."""
    return f"timestamp_millis(if({milliseconds} BETWEEN {_YEAR_2_MS} AND {_YEAR_9999_MS}, {milliseconds}, null))"


def create_view(spark: Any, view: str, query: str) -> str:
    """The temporary view shows the query; gives its name."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {query}")
    return view


def _register(spark: Any, view: str, name: str, config: OperatorRules, kind: str, columns: str) -> str:
    """The view shows the log's rows of a kind: the columns that all have, then these."""
    key, value = shown_columns(config)
    common = f"partition, batch, seq, {key} AS key, {value} AS value, headers, timestamp, offset, cause"
    return create_view(spark, view, f"SELECT {common}, {columns} FROM {name}_log WHERE kind = '{kind}'")
