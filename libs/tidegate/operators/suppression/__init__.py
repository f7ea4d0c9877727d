"""Suppression (KIP-328): holds back the newest record of each key until a time limit, a window's close or a bound.

`SuppressionRules` configure until when; `Suppression` is the operator.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.kind import Kind
from tidegate.contracts.operator import Layout, OffsetColumns, Storage
from tidegate.operators.keys import slot_of
from tidegate.operators.suppression.config import SuppressionConfig, SuppressionRules
from tidegate.operators.suppression.state import LAYOUT, SuppressionState, damage_of
from tidegate.operators.suppression.tables import PLACE_COLUMNS
from tidegate.operators.suppression.views import CAUSES, held, register

__all__ = ["KIND", "Suppression", "SuppressionConfig", "SuppressionRules"]


class Suppression:
    """The Operator that `SuppressionRules` configure."""

    kind: str = "suppression"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = PLACE_COLUMNS
    offset_columns = OffsetColumns(complemented=("arrival",))

    def __init__(self, config: SuppressionRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config)

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage whose last batch was complete, or None. Trusts none of its contents."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> SuppressionState:
        """Return the state in the storage.

        Raise UserError if its keys are windowed and those of the configuration are not, or the other way round.
        """
        return SuppressionState(self.config, storage)


KIND = Kind(
    name="suppression",
    config=SuppressionConfig,
    rules=SuppressionRules,
    operator=Suppression,
    register_views=register,
    held=held,
    causes=CAUSES,
)
