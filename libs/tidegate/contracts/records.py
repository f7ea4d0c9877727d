"""Records in columns: the input of every operator.

Records are stored as one byte buffer with flat arrays of positions into it, so that raw Kafka bytes and Arrow columns
are both served without a copy per record. A length of -1 is a null. `headers` is the header block of a Kafka v2 record
(a varint count, then the headers), or has length 0 if the record has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]
Bytes = npt.NDArray[np.uint8]

NULL_LENGTH = -1

STREAM_PORT, TABLE_PORT = range(2)
"""The inputs of an operator that joins two: the rows of a stream, and those of the table that it is joined with."""


UNREADABLE_BATCH = "unreadable record batch"
UNREADABLE = tuple(
    f"{UNREADABLE_BATCH}: {reason}"
    for reason in (
        "its records take more than 256 MiB",
        "its compression is damaged",
        "its records do not fit into it",
    )
)
"""Why a record batch is rejected although its bytes are as they were sent."""

TOO_LARGE, BAD_COMPRESSION, BAD_RECORDS = range(1, 4)
"""Codes of the reasons in UNREADABLE: the index of the reason plus one."""


_COLUMNS = (
    "offset",
    "timestamp",
    *(f"{part}_{of}" for part in ("key", "value", "headers") for of in ("start", "length")),
)


class Row(NamedTuple):
    """One record as Python objects: for tests, drivers and the command line, never for the hot path.

    `time_only`: the row is no record, it only passes its time on. `port`: the input that it is of.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    offset: int
    headers: bytes = b""
    time_only: bool = False
    port: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """Columns of records of one partition, in offset order. All arrays but `data` have the same length.

    `unreadable` has a code per row. 0 stands for a record. Any other code says why a record batch cannot be read; the
    row takes the place of that batch, and its value names the batch's offsets as JSON. None: all rows are records.

    `time_only`: True for rows that only pass their time on, which are time marks and rows that a filter dropped. None:
    there are none. `window`: the start and end of each row's window, if rows come from a step whose keys have windows.

    `port`: the input that each row is of, if there are several: STREAM_PORT or TABLE_PORT, or the number of a stream.
    None: all are of the first one. Rows of several inputs are in the order in which they are processed.
    """

    data: Bytes
    offset: Int64s
    timestamp: Int64s
    key_start: Int64s
    key_length: Int64s
    value_start: Int64s
    value_length: Int64s
    headers_start: Int64s
    headers_length: Int64s
    unreadable: npt.NDArray[np.int8] | None = None
    time_only: npt.NDArray[np.bool_] | None = None
    window: tuple[Int64s, Int64s] | None = None
    port: Int8s | None = None

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> Records:
        """Return the columns of the given rows; inverse of `rows`."""
        listed = list(rows)
        data = bytearray()
        positions = np.zeros((6, len(listed)), np.int64)
        for column, row in enumerate(listed):
            for place, part in enumerate((row.key, row.value, row.headers)):
                positions[2 * place, column] = len(data)
                positions[2 * place + 1, column] = NULL_LENGTH if part is None else len(part)
                data += part or b""
        return cls(
            data=np.frombuffer(bytes(data), np.uint8),
            offset=np.array([row.offset for row in listed], np.int64),
            timestamp=np.array([row.timestamp for row in listed], np.int64),
            key_start=positions[0],
            key_length=positions[1],
            value_start=positions[2],
            value_length=positions[3],
            headers_start=positions[4],
            headers_length=positions[5],
            time_only=np.array([row.time_only for row in listed]) if any(row.time_only for row in listed) else None,
            port=np.array([row.port for row in listed], np.int8) if any(row.port for row in listed) else None,
        )

    def rows(self) -> list[Row]:
        """Return the records as Python objects."""
        return [self._row(index) for index in range(len(self))]

    def slice(self, start: int, end: int) -> Records:
        """Return the records from `start` to `end` (exclusive); they share the same bytes."""
        cut = slice(start, end)
        return Records(
            data=self.data,
            offset=self.offset[cut],
            timestamp=self.timestamp[cut],
            key_start=self.key_start[cut],
            key_length=self.key_length[cut],
            value_start=self.value_start[cut],
            value_length=self.value_length[cut],
            headers_start=self.headers_start[cut],
            headers_length=self.headers_length[cut],
            unreadable=None if self.unreadable is None else self.unreadable[cut],
            time_only=None if self.time_only is None else self.time_only[cut],
            window=None if self.window is None else (self.window[0][cut], self.window[1][cut]),
            port=None if self.port is None else self.port[cut],
        )

    def take(self, chosen: npt.NDArray[Any]) -> Records:
        """Return the records at these indexes, in that order; they share the same bytes."""
        columns = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return replace(
            self,
            **columns,
            unreadable=None if self.unreadable is None else self.unreadable[chosen],
            time_only=None if self.time_only is None else self.time_only[chosen],
            window=None if self.window is None else (self.window[0][chosen], self.window[1][chosen]),
            port=None if self.port is None else self.port[chosen],
        )

    def raised(self, by: int) -> Records:
        """Return the same records with offsets that are `by` larger; everything else is shared."""
        return replace(self, offset=self.offset + by) if by else self

    def _row(self, index: int) -> Row:
        return Row(
            key=self._bytes(self.key_start[index], self.key_length[index]),
            value=self._bytes(self.value_start[index], self.value_length[index]),
            timestamp=int(self.timestamp[index]),
            offset=int(self.offset[index]),
            headers=self._bytes(self.headers_start[index], self.headers_length[index]) or b"",
            time_only=self.time_only is not None and bool(self.time_only[index]),
            port=0 if self.port is None else int(self.port[index]),
        )

    def _bytes(self, start: int, length: int) -> bytes | None:
        return None if length == NULL_LENGTH else self.data[start : start + length].tobytes()
