"""The registry of operator kinds. A kind is a folder beside this file; its `__init__` has the entry, `KIND`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.kind import Kind
from tidegate.contracts.log_schema import ORIGIN
from tidegate.contracts.operator import Operator

_NAMES = (
    "suppression",
    "table_history",
    "stream_table_join",
    "windowed_aggregation",
    "deduplicate",
    "stream_stream_join",
    "pipeline",
)


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds of operators."""
    return _NAMES


@cache
def kind_of(name: str) -> Kind:
    """Return the entry of a kind. Raise UserError if there is no such kind."""
    if name not in _NAMES:
        raise _unknown(name)
    found = import_module(f"{__package__}.{name}").KIND
    assert isinstance(found, Kind)
    return found


def kinds_where(fact: str) -> tuple[str, ...]:
    """Return the names of the kinds of which the fact is true, such as `is_table`."""
    return tuple(name for name in _NAMES if getattr(kind_of(name), fact))


def test_part(name: str, part: str) -> Any:
    """Return a module of the kind's folder that only tests and `tidegate setup` use; a service imports none of them.

    `adapters` runs recorded scenarios (ADAPTERS), `cases` has the cases of the law suite (CASES), `simulation` the
    configurations that simulated services run (SIMULATED) and others with which kernels are compiled (EXERCISED).
    """
    return import_module(f"{__package__}.{kind_of(name).name}.{part}")


def config_type(name: str) -> type[OperatorConfig]:
    """Return the configuration type of a kind. Raise UserError if there is no such kind."""
    return kind_of(name).config


def operator_for(config: OperatorRules) -> Operator:
    """Return the operator that the configuration describes. Raise UserError if there is no such kind."""
    return kind_of(config.kind).operator(config)


def columns_of(config: OperatorConfig) -> tuple[pa.Field, ...]:
    """Return the columns that the operator's log has beyond those of every log."""
    return (*operator_for(config).columns, *(ORIGIN if len(config.inputs) > 1 else ()))


def _unknown(name: str) -> UserError:
    return UserError(f"there is no operator of kind {name}", value=name, remedy=f"kinds: {', '.join(_NAMES)}")
