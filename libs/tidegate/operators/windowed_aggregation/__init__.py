"""Windowed aggregation (KIP-328's grace and final results).

`WindowRules` say which windows and what of them; `WindowedAggregation` is the operator that they describe.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.operator import Layout, Storage
from tidegate.operators.windowed_aggregation import elements
from tidegate.operators.windowed_aggregation.config import WindowConfig, WindowRules
from tidegate.operators.windowed_aggregation.elements import ElementsState, functions_of
from tidegate.operators.windowed_aggregation.state import (
    WindowsState,
    damage_of,
    layout_of,
    plan_of,
)
from tidegate.operators.windowed_aggregation.tables import SLOT, WINDOW_COLUMNS

__all__ = ["WindowConfig", "WindowRules", "WindowedAggregation"]


class WindowedAggregation:
    """The Operator of `WindowRules`."""

    kind: str = "windowed_aggregation"

    def __init__(self, config: WindowRules) -> None:
        self.config = config
        keeps = config.keeps_elements
        self.columns: tuple[pa.Field, ...] = elements.COLUMNS if keeps else WINDOW_COLUMNS
        self.slot: tuple[str, ...] = elements.SLOT if keeps else SLOT
        self.layout: Layout = elements.layout_of(config) if keeps else layout_of(plan_of(config.aggregate)[0])

    def damage(self, storage: Storage) -> str | None:
        """What is wrong with a storage that a batch was complete in; None: nothing. Trusts nothing that is in it."""
        find = elements.damage_of if self.config.keeps_elements else damage_of
        return find(storage.arrays(), self.config)

    def open(self, storage: Storage) -> WindowsState | ElementsState:
        """The state that lives in the storage. Raises UserError when its windows have other aggregates, and when a
        function of the configuration cannot be loaded."""
        if self.config.keeps_elements:
            return ElementsState(self.config, functions_of(self.config), storage)
        return WindowsState(self.config, storage)
