"""Windowed aggregation, with KIP-328's grace and final results.

`WindowedAggregationRules` configure the windows and what is computed of them; `WindowedAggregation` is the operator.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.kind import Kind
from tidegate.contracts.operator import Layout, OffsetColumns, Storage
from tidegate.operators.windowed_aggregation import elements
from tidegate.operators.windowed_aggregation.batch_results.tables import SLOT, WINDOW_COLUMNS
from tidegate.operators.windowed_aggregation.config import WindowedAggregationConfig, WindowedAggregationRules
from tidegate.operators.windowed_aggregation.elements import ElementsState, functions_of
from tidegate.operators.windowed_aggregation.state import (
    WindowsState,
    damage_of,
    layout_of,
    plan_of,
)
from tidegate.operators.windowed_aggregation.views import CAUSES, held, register

__all__ = ["KIND", "WindowedAggregation", "WindowedAggregationConfig", "WindowedAggregationRules"]


class WindowedAggregation:
    """The operator that `WindowedAggregationRules` configure."""

    kind: str = "windowed_aggregation"

    def __init__(self, config: WindowedAggregationRules) -> None:
        self.config = config
        keeps = config.keeps_elements
        self.columns: tuple[pa.Field, ...] = elements.COLUMNS if keeps else WINDOW_COLUMNS
        self.slot: tuple[str, ...] = elements.SLOT if keeps else SLOT
        self.offset_columns = OffsetColumns(plain=("arrival", "opened") if keeps else ("arrival",))
        self.layout: Layout = elements.layout_of(config) if keeps else layout_of(plan_of(config.aggregate)[0].plan)

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage after a completed batch; None if nothing is. Trusts nothing in it."""
        find = elements.damage_of if self.config.keeps_elements else damage_of
        return find(storage.arrays(), self.config)

    def open(self, storage: Storage) -> WindowsState | ElementsState:
        """Return the state that lives in the storage.

        Raises UserError if its windows have other aggregates, or if a function of the configuration cannot be loaded.
        """
        if self.config.keeps_elements:
            return ElementsState(self.config, functions_of(self.config), storage)
        return WindowsState(self.config, storage)


KIND = Kind(
    name="windowed_aggregation",
    config=WindowedAggregationConfig,
    rules=WindowedAggregationRules,
    operator=WindowedAggregation,
    register_views=register,
    holds="windows",
    held=held,
    causes=CAUSES,
    holds_windows=True,
)
