"""A test driver: runs one partition of an operator, record by record, without Kafka, Spark or a lake.

Meant for users' tests, like TopologyTestDriver of Kafka Streams: it runs the real operator on batches of one record.
Text is encoded as UTF-8. The offset of a record is the number of records piped before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tidegate.contracts.errors import BufferFull
from tidegate.contracts.operator import Operator, OperatorState, StepResult, TableReader
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage


@dataclass(frozen=True, kw_only=True)
class Emission:
    """A record that the operator emitted, and the cause."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    cause: str
    headers: bytes = b""
    window_start: int | None = None
    window_end: int | None = None


class Driver:
    """The driver of one partition: `pipe` feeds a record and returns what the operator emits.

    `late` and `rejected` collect those records as log rows. `table` is the driver of the table that the operator reads;
    pipe the table's records there. A lookup sees the table as it is when the stream record is piped.
    """

    def __init__(self, operator: Operator, *, clock_ms: int = 0, table: Driver | None = None) -> None:
        self.operator = operator
        self.clock_ms = clock_ms
        self.table = table
        self.late: list[dict[str, Any]] = []
        self.rejected: list[dict[str, Any]] = []
        self._state: OperatorState = operator.open(MemoryStorage(operator.layout))
        self._offset = 0
        if table is not None:
            cast(TableReader, self._state).read_table(table._state)

    @property
    def state(self) -> Any:
        """The operator's state. The state of a table answers queries for versions, with `get` and `get_range`."""
        return self._state

    @property
    def stream_time(self) -> int:
        """Stream time T; -1 before the first accepted record."""
        return self._state.stream_time

    def pipe(
        self,
        key: str | bytes | None,
        value: str | bytes | None,
        timestamp: int,
        headers: bytes = b"",
        port: int = 0,
    ) -> list[Emission]:
        """Process one record and return what is emitted. `port`: which input it is from, of an operator with several.

        Raise BufferFull, with the state unchanged, if the operator would stop before this record.
        """
        row = Row(_bytes(key), _bytes(value), timestamp, self._offset, headers, port=port)
        result = self._state.step(Records.from_rows([row]), self.clock_ms)
        if result.stopped_at is not None:
            raise BufferFull(
                f"{result.stopped_by} is reached", value=f"offset {result.stopped_at}", remedy="raise the bound"
            )
        self._offset += 1
        return self._taken(result)

    def empty_batch(self) -> list[Emission]:
        """Process a batch without records and return what is emitted, for a clock or a table that has moved on."""
        return self._taken(self._state.step(Records.from_rows([]), self.clock_ms))

    def advance(self, stream_time: int) -> list[Emission]:
        """Advance stream time to `stream_time` without a record and return what is emitted."""
        return self._taken(self._state.advance(stream_time))

    def flush(self) -> list[Emission]:
        """Release everything that is held and return it."""
        return self._taken(self._state.flush())

    def held(self) -> list[dict[str, Any]]:
        """Return what is held, as snapshot rows in emission order."""
        rows: list[dict[str, Any]] = self._state.snapshot().to_pylist()
        return rows

    def restarted(self, operator: Operator | None = None) -> Driver:
        """Return a driver that continues from a restored copy of the state, under the same or another configuration."""
        twin = Driver(operator or self.operator, clock_ms=self.clock_ms, table=self.table)
        twin._state.restore(self._state.snapshot(), self.stream_time)
        twin._offset = self._offset
        return twin

    def _taken(self, result: StepResult) -> list[Emission]:
        self.late += result.late.to_pylist()
        self.rejected += result.rejected.to_pylist()
        return [
            Emission(
                key=row["key"],
                value=row["value"],
                timestamp=row["timestamp"],
                cause=row["cause"],
                headers=row["headers"] or b"",
                window_start=row.get("window_start"),
                window_end=row.get("window_end"),
            )
            for row in result.emissions.to_pylist()
        ]


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
