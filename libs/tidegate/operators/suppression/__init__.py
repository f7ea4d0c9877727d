"""Suppression (KIP-328): the newest record of each key is held back until it is time.

`SuppressionRules` say until when; `Suppression` is the operator that they describe.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.operator import Layout, Storage
from tidegate.operators.keys import slot_of
from tidegate.operators.suppression.config import SuppressionConfig, SuppressionRules
from tidegate.operators.suppression.state import LAYOUT, SuppressionState, damage_of
from tidegate.operators.suppression.tables import PLACE_COLUMNS

__all__ = ["Suppression", "SuppressionConfig", "SuppressionRules"]


class Suppression:
    """The Operator of `SuppressionRules`."""

    kind: str = "suppression"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = PLACE_COLUMNS

    def __init__(self, config: SuppressionRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config)

    def damage(self, storage: Storage) -> str | None:
        """What is wrong with a storage that a batch was complete in; None: nothing. Trusts nothing that is in it."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> SuppressionState:
        """The state that lives in the storage. Raises UserError when it holds windows' keys and no others are wanted,
        or the other way round."""
        return SuppressionState(self.config, storage)
