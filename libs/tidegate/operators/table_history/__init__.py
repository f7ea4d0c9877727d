"""Table history (KIP-889's versioned store, for KIP-923's join).

`TableHistoryRules` say what is kept; `TableHistory` is the operator that they describe.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.operator import Layout, Storage
from tidegate.operators.keys import slot_of
from tidegate.operators.table_history.config import TableHistoryConfig, TableHistoryRules
from tidegate.operators.table_history.state import LAYOUT, TableHistoryState, damage_of

__all__ = ["TableHistory", "TableHistoryConfig", "TableHistoryRules"]


class TableHistory:
    """The Operator of `TableHistoryRules`. A table of latest values has one slot per key, a history one per version."""

    kind: str = "table_history"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = ()

    def __init__(self, config: TableHistoryRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config, *(() if config.versions == "latest" else ("timestamp",)))

    def damage(self, storage: Storage) -> str | None:
        """What is wrong with a storage that a batch was complete in; None: nothing. Trusts nothing that is in it."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> TableHistoryState:
        """The state that lives in the storage."""
        return TableHistoryState(self.config, storage)
