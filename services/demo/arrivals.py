"""Departures and readings in the order in which they really came, through the operators themselves, one by one.

It answers what a service would have done that year: a departure that leaves ahead of its time comes before the reading
that it should meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from services.demo.departures import Departure
from services.demo.meetings import NOTHING, readings_to_meet
from services.demo.weather import Reading
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinRules
from tidegate.operators.stream_table_join.state import StreamTableJoinState
from tidegate.operators.table_history import TableHistory, TableHistoryRules
from tidegate.operators.table_history.state import TableHistoryState


class Way(NamedTuple):
    """A way to join, and what it is called."""

    name: str
    table: TableHistoryRules
    grace: str | None


def ways(grace: str, retention: str) -> list[Way]:
    """The join of the demo, the same without its grace, and with a table that has no history."""
    history = TableHistoryRules(history_retention=retention)
    return [
        Way(f"history, grace {grace}", history, grace),
        Way("history, grace 0", history, "0"),
        Way("latest values, no grace", TableHistoryRules(versions="latest"), None),
    ]


def wrong_readings(
    grace: str, retention: str, stream: Sequence[Departure], readings: Sequence[Reading]
) -> dict[str, int]:
    """How many departures meet another reading than the one that was valid at their time, by each way to join."""
    right = readings_to_meet(stream, readings)
    return {way.name: int((readings_met(way, stream, readings) != right).sum()) for way in ways(grace, retention)}


def readings_met(way: Way, stream: Sequence[Departure], readings: Sequence[Reading]) -> npt.NDArray[np.int64]:
    """Per departure the number of the reading that it met, or NOTHING; in the end all departures have been joined."""
    table, join = _opened(way)
    joined = []
    for side, records in _in_order_of_arrival(stream, readings):
        if side == _TABLE:
            table.step(records, 0)
        else:
            joined.append(join.step(records, 0).emissions)
    return _numbers_of(pa.concat_tables([*joined, join.flush().emissions]), readings)


def _numbers_of(joined: pa.Table, readings: Sequence[Reading]) -> npt.NDArray[np.int64]:
    """The numbers of the readings met, by the numbers of the departures: their offsets."""
    numbers = {(reading.key, reading.timestamp): number for number, reading in enumerate(readings)}
    met = np.empty(len(joined), np.int64)
    found = zip(joined["key"].to_pylist(), joined["valid_from"].to_pylist(), strict=True)
    met[joined["offset"].to_numpy()] = [numbers.get(version, NOTHING) for version in found]
    return met


_TABLE, _STREAM = 0, 1


def _opened(way: Way) -> tuple[TableHistoryState, StreamTableJoinState]:
    """A table and a join that reads it, of one partition each."""
    kept = TableHistory(way.table)
    joined = StreamTableJoin(StreamTableJoinRules(table="weather", join="left", grace=way.grace))
    table, join = kept.open(MemoryStorage(kept.layout)), joined.open(MemoryStorage(joined.layout))
    join.read_table(table)
    return table, join


def _in_order_of_arrival(stream: Sequence[Departure], readings: Sequence[Reading]) -> Iterator[tuple[int, Records]]:
    """Pieces of one side and then of the other: a reading comes at its time, a departure when the aircraft leaves.

    Values are of no concern here, and left out; a record's offset is its number.
    """
    sides = [
        Records.from_rows(Row(reading.key, b"0", reading.timestamp, number) for number, reading in enumerate(readings)),
        Records.from_rows(Row(d.airport, b"0", d.timestamp, number) for number, d in enumerate(stream)),
    ]
    arrivals = np.array([*(reading.timestamp for reading in readings), *(departure.left for departure in stream)])
    side = np.repeat([_TABLE, _STREAM], [len(readings), len(stream)])
    in_order = side[np.lexsort((side, arrivals))]
    ends = np.append(np.flatnonzero(np.diff(in_order)) + 1, len(in_order))
    done = [0, 0]
    for start, end in pairwise([0, *ends.tolist()]):
        which = int(in_order[start])
        yield which, sides[which].slice(done[which], done[which] + end - start)
        done[which] += end - start
