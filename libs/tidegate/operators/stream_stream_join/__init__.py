"""The stream-stream join: joins the records of two streams that have the same key and are close in time (KIP-328).

`StreamStreamJoinRules` configure how; `StreamStreamJoin` is the operator.
"""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.kind import Kind
from tidegate.contracts.operator import Layout, OffsetColumns, Storage
from tidegate.operators.keys import slot_of
from tidegate.operators.stream_stream_join.config import StreamStreamJoinConfig, StreamStreamJoinRules
from tidegate.operators.stream_stream_join.state import LAYOUT, StreamStreamJoinState, damage_of
from tidegate.operators.stream_stream_join.tables import SIDE, WAITS
from tidegate.operators.stream_stream_join.views import register

__all__ = ["KIND", "StreamStreamJoin", "StreamStreamJoinConfig", "StreamStreamJoinRules"]


class StreamStreamJoin:
    """The Operator that `StreamStreamJoinRules` configure. The port of a record is 0 on the left and 1 on the right."""

    kind: str = "stream_stream_join"
    layout: Layout = LAYOUT
    columns: tuple[pa.Field, ...] = (SIDE, WAITS)
    offset_columns = OffsetColumns()

    def __init__(self, config: StreamStreamJoinRules) -> None:
        self.config = config
        self.slot: tuple[str, ...] = slot_of(config, SIDE.name, "timestamp", "offset")

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage whose last batch was complete, or None. Trusts none of its contents."""
        return damage_of(storage.arrays(), self.config)

    def open(self, storage: Storage) -> StreamStreamJoinState:
        """Return the state in the storage. Raise UserError if its keys are windowed and the configuration's are not."""
        return StreamStreamJoinState(self.config, storage)


KIND = Kind(
    name="stream_stream_join",
    config=StreamStreamJoinConfig,
    rules=StreamStreamJoinRules,
    operator=StreamStreamJoin,
    register_views=register,
)
