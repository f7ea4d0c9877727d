"""Windowed aggregation (KIP-328's grace and final results). May import: contracts, kernels.

`WindowRules` say which windows and what of them; `WindowedAggregation` is the operator that they describe.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.operator import Layout, Storage
from tidegate.operators.windows.config import WindowConfig, WindowRules
from tidegate.operators.windows.state import WindowsState, damage_of, layout_of, plan_of
from tidegate.operators.windows.tables import WINDOW_COLUMNS

__all__ = ["WindowConfig", "WindowRules", "WindowedAggregation"]


class WindowedAggregation:
    """The Operator of `WindowRules`."""

    kind: str = "windowed_aggregation"
    columns: tuple[pa.Field, ...] = WINDOW_COLUMNS
    slot: tuple[str, ...] = ("key", "window_start", "window_end")

    def __init__(self, config: WindowRules) -> None:
        self.config = config
        self.layout: Layout = layout_of(plan_of(config.aggregate)[0])

    def damage(self, storage: Storage) -> str | None:
        """What is wrong with a storage that a batch was complete in; None: nothing. Trusts nothing that is in it."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> WindowsState:
        """The state that lives in the storage. Raises UserError when its windows have other aggregates."""
        return WindowsState(self.config, storage)
