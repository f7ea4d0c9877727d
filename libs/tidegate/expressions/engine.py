"""DuckDB, as expressions use it: in memory, on one thread, without access to anything outside, at one time zone."""

from __future__ import annotations

import os
import threading
from functools import lru_cache

import duckdb

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}


def engine() -> duckdb.DuckDBPyConnection:
    """Return this thread's connection. A forked process has connections of its own."""
    return _engine(os.getpid(), threading.get_ident())


@lru_cache(maxsize=64)
def _engine(_process: int, _thread: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET python_enable_replacements = false")  # a name is a column, never a variable of ours
    connection.execute("SET TimeZone = 'UTC'")  # not the machine's: a replay elsewhere decides the same
    connection.execute("SET lock_configuration = true")
    return connection
