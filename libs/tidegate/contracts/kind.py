"""What a kind of operator is to everything outside of its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.contracts.config import OperatorConfig, OperatorRules
from tidegate.contracts.operator import Operator


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of operator: the parts of its folder, and the facts that commands, views and tests ask for.

    `register_views(spark, name, config)` creates the SQL views that only this kind has and returns their names.
    `is_table`: other operators may read it. `holds_windows`: its state has windows with a newest value each.

    `adapters`: the recorded scenarios that it can run, each with its function as `module:function`. `laws`: the module
    with the cases of the law suite and their strategies. Both are for tests only: a service imports neither.
    """

    name: str
    config: type[OperatorConfig]
    rules: type[OperatorRules]
    operator: Callable[[Any], Operator]
    register_views: Callable[[Any, str, Any], list[str]]
    is_table: bool = False
    holds_windows: bool = False
