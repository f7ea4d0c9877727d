"""What people query of a table in Spark SQL: its versions, and what was valid at any time."""

from __future__ import annotations

from typing import Any

from tidegate.operators.table_history import TableHistoryRules
from tidegate.runtime.spark.views import as_time, create_view, shown_columns, window_columns, window_names

_VALID = ("value", f"{as_time('timestamp')} AS valid_from", f"{as_time('next')} AS valid_to")


def register(spark: Any, name: str, config: TableHistoryRules) -> list[str]:
    """The view `<name>_history` shows every version that is kept; gives the names of what can be queried.

    Columns: partition, key, window_start and window_end (where the input is windowed), value, valid_from, valid_to
    (null: still valid). Tombstones are no versions; they end them.

    The table function `<name>_as_of(timestamp)` gives what was valid at that time, at most one version per key, with
    the same columns. A table of latest values has no such function: it does not know what was valid when.
    """
    versions = versions_query(f"{name}_log", config)
    shown = f"SELECT {', '.join(shown_versions(config))} FROM ({versions})"
    found = [create_view(spark, f"{name}_history", shown)]
    if config.versions != "latest":
        valid = was_valid(f"unix_millis({name}_as_of.timestamp)", config.history_retention)
        spark.sql(
            f"""CREATE OR REPLACE TEMPORARY FUNCTION {name}_as_of(timestamp TIMESTAMP)
                RETURNS TABLE RETURN {shown} WHERE {valid}"""
        )
        found.append(f"{name}_as_of(timestamp)")
    return found


def shown_versions(config: TableHistoryRules) -> tuple[str, ...]:
    """Return the columns of `versions_query` as people see them."""
    return ("partition", "key", *window_names(config), *_VALID)


def versions_query(log: str, config: TableHistoryRules) -> str:
    """The SQL query of a log's versions: partition, key, its window, value, timestamp, next, newest; times in ms.

    `next`: from when on the key had another version, or none; null: never. `newest`: T of the partition, because the
    newest version of a key stays, whatever it is.
    """
    key, value = shown_columns(config)
    latest = config.versions == "latest"
    windows = window_columns(config)
    slot = f"partition, key{windows}" if latest else f"partition, key{windows}, timestamp"
    following = "NULL" if latest else f"lead(timestamp) OVER (PARTITION BY partition, key{windows} ORDER BY timestamp)"
    return f"""
        SELECT partition, {key} AS key{windows}, {value} AS value, timestamp, next, newest FROM (
            SELECT *, CAST({following} AS BIGINT) AS next, max(timestamp) OVER (PARTITION BY partition) AS newest FROM (
                SELECT *, row_number() OVER (PARTITION BY {slot} ORDER BY batch DESC, seq DESC) AS age
                FROM {log} WHERE kind = 'state'
            ) WHERE age = 1 AND op = 'put'
        ) WHERE value IS NOT NULL"""


def was_valid(asked: str, retention_ms: int | None) -> str:
    """The SQL condition that a version was valid at the time `asked`, ms, for those who look it up.

    Before T - retention that is only a key's newest version: others that are still there may not be all that were.
    """
    valid = f"timestamp <= {asked} AND (next IS NULL OR next > {asked})"
    return valid if retention_ms is None else f"{valid} AND (next IS NULL OR {asked} >= newest - {retention_ms})"
