"""Table history: keeps the versions of a table's keys, as KIP-889's versioned store does, for KIP-923's join.

`TableHistoryRules` configure what is kept; `TableHistory` is the operator.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.kind import Kind
from tidegate.contracts.operator import Layout, OffsetColumns, Storage
from tidegate.operators.keys import slot_of
from tidegate.operators.table_history.config import TableHistoryConfig, TableHistoryRules
from tidegate.operators.table_history.state import LAYOUT, TableHistoryState, damage_of
from tidegate.operators.table_history.views import held, register

__all__ = ["KIND", "TableHistory", "TableHistoryConfig", "TableHistoryRules"]


class TableHistory:
    """The Operator that `TableHistoryRules` configure.

    A changelog slot is a version of a key in a history, and a key in a table of latest values.
    """

    kind: str = "table_history"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = ()
    offset_columns = OffsetColumns()

    def __init__(self, config: TableHistoryRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config, *(() if config.versions == "latest" else ("timestamp",)))

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage whose last batch was complete, or None. Trusts none of its contents."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> TableHistoryState:
        """Return the state in the storage."""
        return TableHistoryState(self.config, storage)


KIND = Kind(
    name="table_history",
    config=TableHistoryConfig,
    rules=TableHistoryRules,
    operator=TableHistory,
    register_views=register,
    holds="versions",
    held=held,
    is_table=True,
)
