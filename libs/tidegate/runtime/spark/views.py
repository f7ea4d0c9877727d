"""The SQL views that every operator has. May import: pyspark, contracts.

Views are temporary and named after the operator: `<operator>_log` is the raw log, the others show what people ask for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.contracts.config import Format, OperatorConfig

_SHOWN_AS: dict[Format, str] = {"bytes": "{0}", "string": "CAST({0} AS STRING)", "json": "CAST({0} AS STRING)"}


def register_log(spark: Any, name: str, path: Path, version: int | None) -> None:
    """The view `<name>_log` shows the operator log, as of a version if one is given."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    reader.load(str(path)).createOrReplaceTempView(f"{name}_log")


def register_outputs(spark: Any, name: str, config: OperatorConfig) -> list[str]:
    """The views `<name>_emissions`, `<name>_late` and `<name>_rejected` stand over `<name>_log`; gives their names."""
    key, value = shown_columns(config)
    common = f"partition, batch, seq, {key} AS key, {value} AS value, headers, timestamp, offset, cause"
    shown = {
        "emissions": ("emission", f"{common}, timestamp_millis(timestamp) AS event_time"),
        "late": ("late", f"{common}, topic, lateness, bound"),
        "rejected": ("rejected", f"{common}, topic, bound"),
    }
    for view, (kind, columns) in shown.items():
        create_view(spark, f"{name}_{view}", f"SELECT {columns} FROM {name}_log WHERE kind = '{kind}'")
    return [f"{name}_{view}" for view in shown]


def shown_columns(config: OperatorConfig) -> tuple[str, str]:
    """The SQL expressions that show key and value in the configured formats."""
    return _SHOWN_AS[config.key_format].format("key"), _SHOWN_AS[config.value_format].format("value")


def create_view(spark: Any, view: str, query: str) -> None:
    """The temporary view shows the query."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {query}")
