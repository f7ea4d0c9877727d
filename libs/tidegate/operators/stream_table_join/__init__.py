"""The stream-table join (KIP-923): each record meets the version that was valid when it happened.

`StreamTableJoinRules` say how; `StreamTableJoin` is the operator that they describe.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.operator import Layout, Storage
from tidegate.operators.stream_table_join import joiner
from tidegate.operators.stream_table_join.config import StreamTableJoinConfig, StreamTableJoinRules
from tidegate.operators.stream_table_join.state import LAYOUT, StreamTableJoinState, damage_of
from tidegate.operators.stream_table_join.tables import ARRIVED, VALID_FROM

__all__ = ["StreamTableJoin", "StreamTableJoinConfig", "StreamTableJoinRules"]


class StreamTableJoin:
    """The Operator of `StreamTableJoinRules`."""

    kind: str = "stream_table_join"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = (ARRIVED, VALID_FROM)
    slot: tuple[str, ...] = ("key", "timestamp", "offset")

    def __init__(self, config: StreamTableJoinRules) -> None:
        self.config = config

    def damage(self, storage: Storage) -> str | None:
        """What is wrong with a storage that a batch was complete in; None: nothing. Trusts nothing that is in it."""
        return damage_of(storage.arrays())

    def open(self, storage: Storage) -> StreamTableJoinState:
        """The state that lives in the storage; `read_table` comes next. Raises UserError if its joiner is not there."""
        loaded = None if self.config.joiner is None else joiner.load(self.config.joiner)
        return StreamTableJoinState(self.config, loaded, storage)
