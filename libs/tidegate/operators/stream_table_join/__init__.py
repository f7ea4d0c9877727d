"""The stream-table join (KIP-923): joins each record with the table's version that was valid at its timestamp.

`StreamTableJoinRules` configure how; `StreamTableJoin` is the operator.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.kind import Kind
from tidegate.contracts.operator import Layout, OffsetColumns, Storage
from tidegate.operators.keys import slot_of
from tidegate.operators.stream_table_join import joiner
from tidegate.operators.stream_table_join.config import StreamTableJoinConfig, StreamTableJoinRules
from tidegate.operators.stream_table_join.state import LAYOUT, StreamTableJoinState, damage_of
from tidegate.operators.stream_table_join.tables import ARRIVED, VALID_FROM
from tidegate.operators.stream_table_join.views import CAUSES, held, register

__all__ = ["KIND", "StreamTableJoin", "StreamTableJoinConfig", "StreamTableJoinRules"]


class StreamTableJoin:
    """The Operator that `StreamTableJoinRules` configure."""

    kind: str = "stream_table_join"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = (ARRIVED, VALID_FROM)
    offset_columns = OffsetColumns()

    def __init__(self, config: StreamTableJoinRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config, "timestamp", "offset")

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage whose last batch was complete, or None. Trusts none of its contents."""
        return damage_of(storage.arrays())

    def open(self, storage: Storage) -> StreamTableJoinState:
        """Return the state in the storage; call its `read_table` next. Raise UserError if the joiner fails to load."""
        loaded = None if self.config.joiner is None else joiner.load(self.config.joiner)
        return StreamTableJoinState(self.config, loaded, storage)


KIND = Kind(
    name="stream_table_join",
    config=StreamTableJoinConfig,
    rules=StreamTableJoinRules,
    operator=StreamTableJoin,
    register_views=register,
    held=held,
    causes=CAUSES,
)
