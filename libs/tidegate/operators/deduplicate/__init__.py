"""Deduplication: emits the first record of each key, within a period or for ever.

`DeduplicateRules` configure the time; `Deduplicate` is the operator.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.kind import Kind
from tidegate.contracts.operator import Layout, OffsetColumns, Storage
from tidegate.operators.deduplicate.config import DeduplicateConfig, DeduplicateRules
from tidegate.operators.deduplicate.state import LAYOUT, DeduplicateState, damage_of
from tidegate.operators.deduplicate.views import CAUSES, register
from tidegate.operators.keys import slot_of

__all__ = ["KIND", "Deduplicate", "DeduplicateConfig", "DeduplicateRules"]


class Deduplicate:
    """The Operator that `DeduplicateRules` configure."""

    kind: str = "deduplicate"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = ()
    offset_columns = OffsetColumns()

    def __init__(self, config: DeduplicateRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config, "timestamp")

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage whose last batch was complete, or None. Trusts none of its contents."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> DeduplicateState:
        """Return the state in the storage. Raise UserError if its keys are windowed and the configuration's are not."""
        return DeduplicateState(self.config, storage)


KIND = Kind(
    name="deduplicate",
    config=DeduplicateConfig,
    rules=DeduplicateRules,
    operator=Deduplicate,
    register_views=register,
    holds="remembered keys",
    causes=CAUSES,
)
