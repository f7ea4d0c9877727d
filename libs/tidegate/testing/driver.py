"""One partition of an operator, record by record, without Kafka, Spark or a lake.

For users' tests, as TopologyTestDriver is for those of Kafka Streams: the real operator runs, on batches of one record.
Text is UTF-8; the offset counts the records piped.
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
    """A record that left the operator, and why."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    cause: str
    headers: bytes = b""
    window_start: int | None = None
    window_end: int | None = None


class Driver:
    """`pipe` records in and get what they cause; `late` and `rejected` gather what was refused, as log rows.

    `table`: the driver of the table that the operator reads, as it is at each record; pipe the table's records there.
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
        """The operator's state; a table's can be asked for its versions, by `get` and `get_range`."""
        return self._state

    @property
    def stream_time(self) -> int:
        """T; -1 before the first accepted record."""
        return self._state.stream_time

    def pipe(
        self, key: str | bytes | None, value: str | bytes | None, timestamp: int, headers: bytes = b""
    ) -> list[Emission]:
        """What the record causes. Raises BufferFull, with nothing changed, where the operator would stop before it."""
        row = Row(_bytes(key), _bytes(value), timestamp, self._offset, headers)
        result = self._state.step(Records.from_rows([row]), self.clock_ms)
        if result.stopped_at is not None:
            raise BufferFull(result.stop_reason, value=f"offset {result.stopped_at}", remedy="raise the bound")
        self._offset += 1
        return self._taken(result)

    def empty_batch(self) -> list[Emission]:
        """What comes out of a batch without records: the clock or the table may have moved."""
        return self._taken(self._state.step(Records.from_rows([]), self.clock_ms))

    def advance(self, stream_time: int) -> list[Emission]:
        """What comes out when stream time goes on to `stream_time` without a record."""
        return self._taken(self._state.advance(stream_time))

    def flush(self) -> list[Emission]:
        """Everything that was held."""
        return self._taken(self._state.flush())

    def held(self) -> list[dict[str, Any]]:
        """What is held, as rows of a snapshot, in emission order."""
        rows: list[dict[str, Any]] = self._state.snapshot().to_pylist()
        return rows

    def restarted(self, operator: Operator | None = None) -> Driver:
        """A driver that goes on from here with a restored state, under the same operator or another configuration."""
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
