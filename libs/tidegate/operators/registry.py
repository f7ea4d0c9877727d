"""The registry of operator kinds: the configuration type and the operator of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidegate.contracts.config import OperatorConfig, OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Operator
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.suppression import Suppression, SuppressionConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig


class _Entry(NamedTuple):
    config: type[OperatorConfig]
    operator: Callable[[Any], Operator]


_KINDS = {
    "suppression": _Entry(SuppressionConfig, Suppression),
    "table_history": _Entry(TableHistoryConfig, TableHistory),
    "stream_table_join": _Entry(StreamTableJoinConfig, StreamTableJoin),
    "windowed_aggregation": _Entry(WindowedAggregationConfig, WindowedAggregation),
}


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds of operators."""
    return tuple(_KINDS)


def config_type(kind: str) -> type[OperatorConfig]:
    """Return the configuration type of a kind. Raise UserError if there is no such kind."""
    return _entry(kind).config


def operator_for(config: OperatorRules) -> Operator:
    """Return the operator that the configuration describes. Raise UserError if there is no such kind."""
    return _entry(config.kind).operator(config)


def _entry(kind: str) -> _Entry:
    if kind in _KINDS:
        return _KINDS[kind]
    raise UserError(f"there is no operator of kind {kind}", value=kind, remedy=f"kinds: {', '.join(_KINDS)}")
