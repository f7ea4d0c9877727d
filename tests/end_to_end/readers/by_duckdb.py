"""A log as DuckDB reads it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_delta


def duck(log: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with the log as the view `log`, by its own Delta extension."""
    connection = duckdb.connect()
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension"))
    connection.execute(f"LOAD '{extension}'")
    connection.execute(f"CREATE VIEW log AS SELECT * FROM delta_scan('{log}')")
    return connection
