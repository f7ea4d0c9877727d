"""Checks of a query's tree, as DuckDB has parsed it: it only reads views, and its functions look at nothing else.

Everything that is not known to be harmless is refused. DuckDB calls a SELECT much that is none, such as SHOW, and reads
files that are named as tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.contracts.errors import UserError
from tidegate.expressions.functions import ALLOWED

_OVER_ROWS = """
    any_value approx_count_distinct arg_max arg_min array_agg avg bool_and bool_or corr count count_if count_star
    covar_pop first histogram kurtosis last list max max_by mean median min min_by mode quantile quantile_cont
    quantile_disc regr_slope skewness stddev stddev_pop stddev_samp string_agg sum sumkahan var_pop var_samp variance
    cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank row_number
    coalesce date_add json_extract json_extract_string json_array_length json_keys json_type json_valid -> ->> unnest
"""
FUNCTIONS = ALLOWED | frozenset(_OVER_ROWS.split())
"""The functions that queries may use: those of expressions, those over many rows, and those of JSON."""

_CLASSES = """
    BETWEEN CASE CAST COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION OPERATOR POSITIONAL_REFERENCE STAR SUBQUERY
    WINDOW
"""
_NODES = "SELECT_NODE SET_OPERATION_NODE BASE_TABLE TABLE_FUNCTION JOIN SUBQUERY EMPTY EXPRESSION_LIST"
_CLAUSES = """
    ORDER_MODIFIER LIMIT_MODIFIER DISTINCT_MODIFIER LIMIT_PERCENT_MODIFIER ASCENDING DESCENDING ORDER_DEFAULT
"""
_TYPES = "DECIMAL_TYPE_INFO LIST_TYPE_INFO STRUCT_TYPE_INFO STRING_TYPE_INFO"
EXPRESSIONS, OTHERS = frozenset(_CLASSES.split()), frozenset(" ".join((_NODES, _CLAUSES, _TYPES)).split())
"""DuckDB's classes of expressions, and its names of all other parts of a query, that are let through."""

REMEDY = "write one SELECT over the views that the page lists, with functions that the documentation lists"


@dataclass(frozen=True)
class Names:
    """The names that a query may use: of views, and of functions whose result is a table. All are in lower case."""

    views: Collection[str]
    functions: Collection[str] = field(default=())

    def and_views(self, more: Collection[str]) -> Names:
        """Return the names with more views."""
        return Names({*self.views, *more}, self.functions)


def check(tree: Mapping[str, Any], names: Names) -> set[str]:
    """Return which of the names the query uses. Raise UserError if it is not one query, or reads anything else."""
    if tree["error"]:
        said = str(tree["error_message"]).splitlines()[0]
        raise UserError("the query cannot be read", value=said[:300], remedy=f'{REMEDY}; write "offset" in quotes')
    if len(tree["statements"]) != 1:
        raise UserError("there is more than one query", value=len(tree["statements"]), remedy="write one of them")
    used: set[str] = set()
    _check(tree["statements"][0], names, used)
    return used & {*names.views, *names.functions}


def _check(part: Any, names: Names, used: set[str]) -> None:
    if isinstance(part, list):
        for each in part:
            _check(each, names, used)
    if not isinstance(part, dict):
        return
    known = names
    if own := part.get("cte_map"):
        known = names.and_views([each["key"].lower() for each in own["map"]])
    _check_itself(part, known, used)
    for name, each in part.items():
        if not (part.get("type") == "TABLE_FUNCTION" and name == "function"):
            _check(each, known, used)
        else:
            _check(each["children"], known, used)


def _check_itself(part: Mapping[str, Any], names: Names, used: set[str]) -> None:
    kind, what = part.get("class"), part.get("type")
    if kind is not None and kind not in EXPRESSIONS:
        raise _refused(f"{kind.lower()} expressions")
    if kind is None and isinstance(what, str) and what not in OTHERS:
        raise _refused(what.lower().replace("_", " "))
    if kind in ("FUNCTION", "WINDOW"):
        _check_name(part, part["function_name"], part["schema"], FUNCTIONS, "function")
    elif kind is None and what == "BASE_TABLE":
        used.add(_check_name(part, part["table_name"], part["schema_name"], names.views, "view"))
    elif kind is None and what == "TABLE_FUNCTION":
        function = part["function"]
        name = _check_name(function, function["function_name"], function["schema"], names.functions, "table function")
        used.add(name)


def _check_name(part: Mapping[str, Any], name: str, schema: str, known: Collection[str], what: str) -> str:
    catalog = part.get("catalog", part.get("catalog_name"))
    if name.lower() not in known or schema not in ("", "main") or catalog:
        full = ".".join(filter(None, (catalog, schema, name)))
        raise _refused(f"the {what} {full[:100]}")
    return name.lower()


def _refused(what: str) -> UserError:
    return UserError("the query may not use this", value=what, remedy=REMEDY)
