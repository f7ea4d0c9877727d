"""A log as DuckDB reads it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_delta
import duckdb_extension_httpfs

from tests.lake.s3_server import LOGIN
from tidegate.state.lake.place import Place


def duck(log: Path | Place) -> duckdb.DuckDBPyConnection:
    """DuckDB with the log as the view `log`, by its own Delta extension, and by httpfs if the log is on S3."""
    connection = duckdb.connect()
    if isinstance(log, Place) and not log.is_local:
        log_in(connection, log)
    load(connection, duckdb_extension_delta, "delta")
    connection.execute(f"CREATE VIEW log AS SELECT * FROM delta_scan('{log}')")
    return connection


def log_in(connection: duckdb.DuckDBPyConnection, place: Place) -> None:
    """The connection reads the S3 server of the tests."""
    load(connection, duckdb_extension_httpfs, "httpfs")
    options = dict(place.options)
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{LOGIN['AWS_ACCESS_KEY_ID']}', REGION '{options['region']}', "
        f"SECRET '{LOGIN['AWS_SECRET_ACCESS_KEY']}', ENDPOINT '{options['endpoint'].partition('//')[2]}', "
        "URL_STYLE 'path', USE_SSL false)"
    )


def load(connection: duckdb.DuckDBPyConnection, package: object, name: str) -> None:
    """The connection has the extension of an installed package."""
    folder = Path(getattr(package, "__file__", None) or "").parent
    connection.execute(f"LOAD '{next(folder.rglob(f'{name}.duckdb_extension'))}'")
