"""Checks of expressions: one value per row, of known columns, by functions that always give the same result.

No row is needed for that. DuckDB parses the text, and its type is that of the expression over no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.values import Path
from tidegate.expressions.comparisons import Comparison, comparison_of
from tidegate.expressions.engine import engine
from tidegate.expressions.functions import ALLOWED

ROWS = "batch_of_rows"
"""The name of the rows in queries."""

_PARTS = {
    "BETWEEN",
    "CASE",
    "CAST",
    "COLUMN_REF",
    "COMPARISON",
    "CONJUNCTION",
    "CONSTANT",
    "FUNCTION",
    "OPERATOR",
}
"""DuckDB's classes of the parts of which an expression may consist."""
_NO_VALUE_OF_A_ROW = {
    "SUBQUERY": "it contains a query",
    "WINDOW": "it looks at other rows",
    "STAR": "it has several values",
    "PARAMETER": "it has a parameter",
    "POSITIONAL_REFERENCE": "it names a column by its position",
    "LAMBDA": "it contains a function",
    "COLLATE": "it names a collation",
    "DEFAULT": "it has no value of its own",
}
_SCHEMAS = ("", "main")
"""DuckDB writes `main` for functions that have a grammar of their own, such as `trim(both 'x' from s)`."""
_CLAUSES = ("where_clause", "having", "sample", "qualify")
_AGGREGATE_PARTS = ("distinct", "filter")


@dataclass(frozen=True)
class Expression:
    """A checked expression: its text, the paths of the fields that it reads, and the type of its values.

    `comparison`: the one that it is; None if Arrow does not evaluate it.
    """

    text: str
    paths: frozenset[Path]
    type: pa.DataType
    comparison: Comparison | None = None

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns in which the fields are."""
        return frozenset(column for column, *_ in self.paths)


@lru_cache(maxsize=1_024)  # a configuration is read many times, and DuckDB takes milliseconds
def check(text: str, schema: pa.Schema) -> Expression:
    """Return the expression. Raise UserError, with the remedy, if it cannot be evaluated for rows of the schema."""
    check_names(schema)
    root = _root(text)
    parts = list(_parts(root))
    for part in parts:
        _check_part(text, part)
    paths = frozenset(_path(part, schema, text) for part in parts if part["class"] == "COLUMN_REF")
    read = [schema.field(column) for column, *_ in paths]
    return Expression(text, paths, _type(text, schema), comparison_of(root, read))


def check_condition(text: str, schema: pa.Schema) -> Expression:
    """Return the expression, which is true or false (or null). Raise UserError if it is not, and as `check` does."""
    condition = check(text, schema)
    if not pa.types.is_boolean(condition.type):
        raise UserError(
            "a condition must be true or false", value=f"{text}: {condition.type}", remedy="compare it, as in `n < 3`"
        )
    return condition


def check_names(fields: Iterable[pa.Field]) -> None:
    """Raise UserError if two columns, or two fields of one, are one to SQL: it does not tell upper from lower case."""
    names: dict[str, str] = {}
    for field in fields:
        if (other := names.get(field.name.lower())) is not None:
            raise UserError(
                "columns of expressions must differ in more than upper and lower case",
                value=f"{other}, {field.name}",
                remedy="rename one of them",
            )
        names[field.name.lower()] = field.name
        if pa.types.is_struct(field.type):
            check_names(field.type)


def _root(text: str) -> dict[str, Any]:
    """Return the only expression of the text, as DuckDB has parsed it."""
    tree = json.loads(_only(engine().execute("SELECT json_serialize_sql(?)", [f"SELECT {text}\n"])))
    if tree["error"]:
        raise UserError(
            "an expression cannot be read",
            value=f"{text}: {tree['error_message']}",
            remedy="write a SQL expression, such as `n < 3`; put names that are words of SQL in double quotes",
        )
    nodes = [statement["node"] for statement in tree["statements"]]
    if len(nodes) != 1 or not _is_plain(nodes[0]):
        raise UserError(
            "an expression is a single value, without further clauses", value=text, remedy="write one value only"
        )
    root: dict[str, Any] = nodes[0]["select_list"][0]
    return root


def _only(answer: duckdb.DuckDBPyConnection) -> Any:
    row = answer.fetchone()
    if row is None:
        raise AssertionError("the query has one row")
    return row[0]


def _is_plain(node: Mapping[str, Any]) -> bool:
    """Return whether the query is nothing but SELECT and one value without a name."""
    return (
        node["type"] == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and not node["select_list"][0]["alias"]
        and node["from_table"]["type"] == "EMPTY"
        and not node["modifiers"]
        and not node["group_expressions"]
        and not node["cte_map"]["map"]
        and not any(node[clause] for clause in _CLAUSES)
    )


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all parts of the expression, each before those that it consists of."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        for part in tree.values():
            yield from _parts(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _parts(part)


def _check_part(text: str, part: Mapping[str, Any]) -> None:
    kind = part["class"]
    if kind not in _PARTS:
        why = _NO_VALUE_OF_A_ROW.get(kind, f"it contains {kind.lower()}")
        raise UserError(f"an expression is a value of one row: {why}", value=text, remedy="use columns and functions")
    if kind != "FUNCTION":
        return
    name = part["function_name"]
    if name not in ALLOWED or part["schema"] not in _SCHEMAS or part["catalog"]:
        raise UserError(
            f"expressions do not have the function {name}",
            value=text,
            remedy="use one whose result depends on its arguments alone: see docs/reference/expressions.md",
        )
    if any(part[clause] for clause in _AGGREGATE_PARTS) or part["order_bys"]["orders"]:
        raise UserError(
            f"{name} is a function of one row", value=text, remedy="leave out DISTINCT, FILTER and ORDER BY"
        )


def _path(part: Mapping[str, Any], schema: pa.Schema, text: str) -> Path:
    """Return the path that the reference means. Raise UserError if there is no such column, or no such field in it."""
    name, *fields = part["column_names"]
    within = _named(name, list(schema), f"no column {name}", text)
    path = [within.name]
    for field in fields:
        if not pa.types.is_struct(within.type):
            break
        within = _named(field, list(within.type), f"no field {field} in {within.name}", text)
        path.append(within.name)
    return tuple(path)


def _named(name: str, known: Sequence[pa.Field], problem: str, text: str) -> pa.Field:
    """Return the field of that name, upper or lower case alike, as in SQL; raise UserError if there is none."""
    for each in known:
        if each.name.lower() == name.lower():
            return each
    raise UserError(problem, value=text, remedy=f"there are: {', '.join(each.name for each in known)}")


def _type(text: str, schema: pa.Schema) -> pa.DataType:
    connection = engine()
    connection.register(ROWS, schema.empty_table())
    try:
        return connection.execute(f"SELECT (\n{text}\n) FROM {ROWS}").to_arrow_table().schema.field(0).type
    except duckdb.Error as error:
        said = str(error).splitlines()[0]
        raise UserError(
            "an expression does not fit its columns",
            value=f"{text}: {said}",
            remedy="convert with CAST, or compare values of the same type",
        ) from error
    finally:
        connection.unregister(ROWS)
