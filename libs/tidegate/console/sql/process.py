"""The process that runs one query: the request is pickled on its stdin, and the result is Arrow rows on its stdout.

DuckDB reads the text here alone. Some functions ask for memory without asking DuckDB's limit, and do not end when it
is interrupted; a limit of the process and its end are what nothing gets around.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tidegate.console.sql.checking import Names, check
from tidegate.console.sql.views import OperatorViews, define
from tidegate.contracts.errors import EngineError, StateError, TidegateError, UserError
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.opening import open_lake

ERRORS: dict[int, type[TidegateError]] = {3: UserError, 4: StateError, 5: EngineError}
"""Errors by the exit code; stdout has the problem, the value and the remedy as JSON.

The query is refused or fails; a file of a log is missing, as after a clean-up; or the lake does not answer.
"""

_MISSING = "No such file or directory"
"""What an error of DuckDB says if Arrow does not find a file."""

DUCKDB_BYTES, MORE_BYTES = 2**29, 3 * 2**29
"""Memory that DuckDB may use, and address space that the process may add to what it has before the query."""

RESULT_BYTES = 2**26
"""Most bytes of a result."""

CPU_S = 30
"""Most seconds of a processor, in case nobody ends the process."""


_LOCKED = (
    "temp_directory = ''",
    "python_enable_replacements = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
"""Settings with which nothing is read but what was defined before."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A query over the views of operators; at most `rows` rows of its result are returned."""

    query: str
    operators: Sequence[OperatorViews]
    rows: int


def main() -> int:
    """Run the request on stdin; return the exit code."""
    request: Request = pickle.load(sys.stdin.buffer)  # from the console, over a pipe
    try:
        with duckdb.connect(":memory:", config={"threads": 2, "memory_limit": f"{DUCKDB_BYTES}B"}) as connection:
            found = rows_of(connection, request)
    except (TidegateError, duckdb.Error, MemoryError, pa.ArrowException) as error:
        said = error if isinstance(error, TidegateError) else _failed(error)
        json.dump([said.problem, str(said.value), said.remedy], sys.stdout)
        return next(code for code, kind in ERRORS.items() if isinstance(said, kind))
    with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as writer:
        writer.write_table(found)
    return 0


def _failed(error: Exception) -> TidegateError:
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if _MISSING in said:
        return StateError("a data file of the operator log is missing", value=said[:300], remedy="try again")
    remedy = "correct it, or narrow it down with WHERE; `tidegate sql` has no limits"
    return UserError("the query failed", value=said[:300], remedy=remedy)


def rows_of(connection: duckdb.DuckDBPyConnection, request: Request) -> pa.Table:
    """Return the result of the query. Raise UserError if it is refused, and DuckDB's error if it fails.

    What runs is the tree that was checked, written as text again, so that the check has seen all of it.
    """
    views = {name.lower(): each for each in request.operators for name in each.names}
    functions = {name.lower(): each for each in request.operators for name in each.functions}
    tree = _one(connection, "SELECT json_serialize_sql(?)", request.query)
    used = check(json.loads(tree), Names(views, functions))
    text = _one(connection, "SELECT json_deserialize_sql(?::JSON)", tree)
    read = {id(each): each for each in (*views.values(), *functions.values()) if used & _names(each)}
    define(connection, list(read.values()), lambda each: LogVersion.at(open_lake(each.place), each.version).dataset())
    for setting in _LOCKED:
        connection.execute(f"SET {setting}")
    _limit()
    rows = connection.execute(f"SELECT * FROM ({text}\n) LIMIT {request.rows}").to_arrow_table()
    if rows.nbytes > RESULT_BYTES:
        value = f"{rows.nbytes / 2**20:,.0f} MiB, of at most {RESULT_BYTES / 2**20:,.0f}"
        raise UserError("the result is too large", value=value, remedy="select fewer rows or columns")
    return rows


def _names(operator: OperatorViews) -> set[str]:
    return {name.lower() for name in (*operator.names, *operator.functions)}


def _limit() -> None:
    """Limit what the process may still do: address space, time of a processor, and no files."""
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for limit, most in ((resource.RLIMIT_AS, present + MORE_BYTES), (resource.RLIMIT_CPU, CPU_S)):
        resource.setrlimit(limit, (most, most))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))


def _one(connection: duckdb.DuckDBPyConnection, query: str, text: str) -> Any:
    row = connection.execute(query, [text]).fetchone()
    assert row is not None, "the query has one row"
    return row[0]


if __name__ == "__main__":
    sys.exit(main())
