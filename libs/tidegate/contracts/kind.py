"""What a kind of operator is to everything outside of its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.operator import Operator


def _as_they_are(rows: pa.Table, _rules: Any) -> pa.Table:
    return rows


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The entry of a kind: the parts of its folder that a service needs, and the facts that commands ask for.

    The entries of two kinds are alike on purpose: each lists its parts.

    `register_views(spark, name, config)` creates the SQL views that only this kind has and returns their names.
    `is_table`: other operators may read it. `holds_windows`: its state has windows with a newest value each.

    `holds`: what people call the content of its state. `held(rows, rules)` takes the newest rows of all slots of a
    partition and returns those that stand for what is held, with further columns that only this kind has; a column of
    times has the type `timestamp[ms]`. `causes`: the rule behind each cause of an emission.
    """

    name: str
    config: type[OperatorConfig]
    rules: type[OperatorRules]
    operator: Callable[[Any], Operator]
    register_views: Callable[[Any, str, Any], list[str]]
    is_table: bool = False
    holds_windows: bool = False
    holds: str = "held records"
    held: Callable[[pa.Table, Any], pa.Table] = _as_they_are
    causes: Mapping[str, str] = field(default_factory=dict)
