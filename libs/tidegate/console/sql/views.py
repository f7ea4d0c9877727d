"""The views of `tidegate sql`, in DuckDB: kinds define them in Spark SQL, and the words that differ are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.config.rules import OperatorRules
from tidegate.operators.registry import kind_of
from tidegate.operators.views import function_of, is_typed, register_outputs
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.place import Place

RowsOf = Callable[["OperatorViews"], Any]

_FUNCTIONS_OF_SPARK = (
    "CREATE MACRO timestamp_millis(ms) AS epoch_ms(ms::BIGINT)",
    "CREATE MACRO unix_millis(moment) AS epoch_ms(moment::TIMESTAMP)",
    "CREATE MACRO as_text(bytes) AS coalesce(TRY(decode(bytes)), bytes::VARCHAR)",
)
"""Functions of Spark that the views use; `as_text` shows bytes that are not UTF-8 as escapes."""

_IN_DUCKDB = (
    (r"CAST\((\w+) AS STRING\)", lambda found: found[0] if found[1] == "NULL" else f"as_text({found[1]})"),
    (r"\bstruct\(", lambda _: "row("),
    (r"\bLEFT ANTI JOIN\b", lambda _: "ANTI JOIN"),
    (r"\* EXCEPT \(", lambda _: "* EXCLUDE ("),
    (r"\boffset\b", lambda _: '"offset"'),  # a word of DuckDB's
)
_VIEW = re.compile(r"CREATE OR REPLACE TEMPORARY VIEW (\w+) AS\s+(.*)", re.DOTALL)
_FUNCTION = re.compile(
    r"CREATE OR REPLACE TEMPORARY FUNCTION (\w+)\(timestamp TIMESTAMP\)\s+RETURNS TABLE RETURN (.*)", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class OperatorViews:
    """The views of an operator over its log at a version.

    `views`, `functions`: DuckDB's statement for each name, in an order in which they can be made. A function takes a
    time, and its result is a table. `formats`: those of keys and values that views show as numbers or as fields.
    """

    log: str
    place: Place
    version: int
    schema: pa.Schema
    views: Mapping[str, str]
    functions: Mapping[str, str]
    formats: Collection[ShownAs]

    @property
    def names(self) -> list[str]:
        """Return the names of the log and its views."""
        return [self.log, *self.views]


def views_of(logs: Mapping[str, LogVersion], operators: Mapping[str, OperatorRules]) -> list[OperatorViews]:
    """Return the views of all operators that have a log, at the version that its handle is at."""
    return [_views(logs[name], name, rules) for name, rules in operators.items() if name in logs]


def _views(log: LogVersion, name: str, rules: OperatorRules) -> OperatorViews:
    session = _Session({f"{name}_log": log.schema.names})
    register_outputs(session, name, rules)
    kind_of(rules.kind).register_views(session, name, rules)
    return OperatorViews(
        log=f"{name}_log",
        place=log.place,
        version=log.version,
        schema=log.schema,
        views=session.views,
        functions=session.functions,
        formats=[form for form in rules.shown_formats() if is_typed(form)],
    )


def define(connection: duckdb.DuckDBPyConnection, operators: Sequence[OperatorViews], rows_of: RowsOf) -> None:
    """Define the views and functions of the operators. `rows_of`: the rows of an operator's log, as Arrow has them."""
    connection.execute("SET TimeZone = 'UTC'")
    for statement in _FUNCTIONS_OF_SPARK:
        connection.execute(statement)
    for form in {form for each in operators for form in each.formats}:
        _define_reader(connection, form)
    for each in operators:
        connection.register(each.log, rows_of(each))
        for statement in (*each.views.values(), *each.functions.values()):
            connection.execute(statement)


def _define_reader(connection: duckdb.DuckDBPyConnection, form: ShownAs) -> None:
    """Define the function that reads values of a typed format. It is called once: what it compiles is then there."""
    from tidegate.kernels.codecs.shown import shown

    def shows(values: pa.ChunkedArray) -> pa.Array:
        return shown(form).column(values)

    [kind] = connection.from_arrow(pa.table({"shown": shows(pa.chunked_array([[]], pa.binary()))})).types
    connection.create_function(
        function_of(form), shows, ["BLOB"], kind, type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL
    )


def columns_of(operators: Sequence[OperatorViews]) -> dict[str, list[str]]:
    """Return the columns of each view, for which no row is read."""
    with duckdb.connect(config={"threads": 1}) as connection:
        define(connection, operators, lambda each: each.schema.empty_table())
        names = (name for each in operators for name in each.names)
        return {name: [column[0] for column in connection.table(name).description] for name in names}


@dataclass
class _Session:
    """What kinds need of a Spark session to define views: it keeps their statements, in DuckDB's words."""

    logs: Mapping[str, Sequence[str]]
    views: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)

    @property
    def catalog(self) -> _Session:
        return self

    def sql(self, statement: str) -> None:
        if (view := _VIEW.fullmatch(statement)) is not None:
            self.views[view[1]] = f"CREATE OR REPLACE VIEW {view[1]} AS {_in_duckdb(view[2])}"
            return
        function = _FUNCTION.fullmatch(statement)
        assert function is not None, f"no view and no function: {statement}"
        name = function[1]
        query = function[2].replace(f"{name}.timestamp", "moment")
        self.functions[name] = f"CREATE OR REPLACE MACRO {name}(moment) AS TABLE {_in_duckdb(query)}"

    def table(self, name: str) -> Any:
        return _Columns(self.logs[name])

    def dropTempView(self, name: str) -> None:
        del self.views[name]


@dataclass(frozen=True)
class _Columns:
    columns: Sequence[str]


def _in_duckdb(query: str) -> str:
    for pattern, replacement in _IN_DUCKDB:
        query = re.sub(pattern, replacement, query)
    return query
