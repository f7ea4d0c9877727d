"""SQL views of a table: its versions, and what was valid at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.operators.table_history.config import TableHistoryConfig, TableHistoryRules
from tidegate.operators.views import TIME, as_time, create_view, shown_columns, window_columns, window_names

_VALID = ("value", f"{as_time('timestamp')} AS valid_from", f"{as_time('next')} AS valid_to")


def register(spark: Any, name: str, config: TableHistoryRules) -> list[str]:
    """Create the view `<name>_history` of all versions that are kept, and the table function `<name>_as_of(timestamp)`.

    The view's columns: partition, key, window_start and window_end (where the input is windowed), value, valid_from,
    valid_to (null: still valid). A tombstone is not a version; it ends the previous one.

    The function returns what was valid at that time, at most one version per key, with the same columns. A table that
    keeps latest values only has no such function, because it has no history. Return the names of the view and the
    function.
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


def versions_as_of(spark: Any, log: Any, asked: Any, shown: TableHistoryRules, retention_ms: int | None) -> Any:
    """Return the DataFrame of what was valid at the time `asked`, a column in ms; `log` is the DataFrame of a log.

    The columns are those of the view. With a retention, lookups before T - retention find newest versions only.
    """
    versions = spark.sql(versions_query("{log}", shown), log=log).withColumn("asked", asked.cast("bigint"))
    return versions.where(was_valid("asked", retention_ms)).selectExpr(*shown_versions(shown))


def rules_that_show(settings: Mapping[str, Any]) -> TableHistoryRules:
    """Return rules that show a log of those settings unchanged, with windows if its keys have them."""
    windows = settings.get("windows", TableHistoryConfig.windows_before(settings))
    return TableHistoryRules(history_retention="0", windows=windows)


def shown_versions(config: TableHistoryRules) -> tuple[str, ...]:
    """Return the columns of `versions_query` as users see them."""
    return ("partition", "key", *window_names(config), *_VALID)


def versions_query(log: str, config: TableHistoryRules) -> str:
    """Return the SQL query of a log's versions: partition, key, window, value, timestamp, next, newest; times in ms.

    `next`: when the key's next version or tombstone begins; null if there is none. `newest`: stream time T of the
    partition. It is the largest timestamp that is left, because the newest version of a key always stays.
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
    """Return the SQL condition that a lookup at the time `asked` (ms) finds a version.

    Before T - retention only the newest version of a key is found: other versions that are left there may be
    incomplete.
    """
    valid = f"timestamp <= {asked} AND (next IS NULL OR next > {asked})"
    return valid if retention_ms is None else f"{valid} AND (next IS NULL OR {asked} >= newest - {retention_ms})"


def held(rows: pa.Table, config: TableHistoryRules) -> pa.Table:
    """Return the versions among the newest rows of slots, with `valid_to`: null while a version is still valid.

    A tombstone is not a version; it ends the previous one.
    """
    key = ("key", *window_names(config))
    ordered = rows.sort_by([(name, "ascending") for name in (*key, "timestamp")])
    has_next = pc.fill_null(_equal_to_next(ordered, key), False)
    ends = pc.if_else(has_next, _next(ordered["timestamp"]), pa.scalar(None, pa.int64())).cast(TIME)
    return ordered.append_column("valid_to", ends).filter(pc.is_valid(ordered["value"]))


def _equal_to_next(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """Return for each row whether the next one has the same values in these columns; null for the last row."""
    same = [pc.equal(rows[name], _next(rows[name])) for name in names]
    return reduce(pc.and_, same)


def _next(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column moved up by one row; null in the last row."""
    return pa.chunked_array([*column[1:].chunks, pa.nulls(min(len(column), 1), column.type)], column.type)


def versions_in(rows: pa.Table, rules: OperatorRules, as_of: int | None) -> pa.Table:
    """Return the versions of a table that its state rows of a partition show, with times in ms; `as_of`: valid then.

    It is the query of the table's view, run by DuckDB, for tasks without a session. Keys and values are bytes.
    """
    assert isinstance(rules, TableHistoryRules), "only a table has versions"
    versions = versions_query("rows", rules.model_copy(update={"key_format": "bytes", "value_format": "bytes"}))
    valid = "true" if as_of is None else was_valid(str(as_of), rules.history_retention)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", rows)
        return connection.sql(f"SELECT * FROM ({versions}) WHERE {valid}").to_arrow_table()


def refuse_latest_values(rules: OperatorRules, table: object) -> None:
    """Raise UserError if a table with these rules keeps latest values only."""
    if isinstance(rules, TableHistoryRules) and rules.versions == "latest":
        remedy = "read the log as of an earlier batch or Delta version, or keep a history with history_retention"
        raise UserError("a table of latest values has no history", value=table, remedy=remedy)
