"""A replay of departures and readings in the order of their arrival in 2013, through the operators themselves.

It shows what a service would have emitted that year: a flight that departs before its scheduled time arrives before the
weather reading that it should be joined to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.records import Records, Row
from tidegate.devkit.demo.departures import Departure
from tidegate.devkit.demo.expected.readings import NOTHING, expected_readings
from tidegate.devkit.demo.weather import Reading
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinRules
from tidegate.operators.stream_table_join.state import StreamTableJoinState
from tidegate.operators.table_history import TableHistory, TableHistoryRules
from tidegate.operators.table_history.state import TableHistoryState


class Variant(NamedTuple):
    """A variant of the join, and its name."""

    name: str
    table: TableHistoryRules
    grace: str | None


def variants(grace: str, retention: str) -> list[Variant]:
    """Return the demo's join, the same join without grace, and a join with a table of latest values only."""
    history = TableHistoryRules(history_retention=retention)
    return [
        Variant(f"history, grace {grace}", history, grace),
        Variant("history, grace 0", history, "0"),
        Variant("latest values, no grace", TableHistoryRules(versions="latest"), None),
    ]


def wrong_readings(
    grace: str, retention: str, stream: Sequence[Departure], readings: Sequence[Reading]
) -> dict[str, int]:
    """Return, for each variant, how many departures are joined to another reading than the one valid at their time."""
    right = expected_readings(stream, readings)
    return {
        variant.name: int((joined_readings(variant, stream, readings) != right).sum())
        for variant in variants(grace, retention)
    }


def joined_readings(
    variant: Variant, stream: Sequence[Departure], readings: Sequence[Reading]
) -> npt.NDArray[np.int64]:
    """Return the number of the reading that each departure was joined to, or NOTHING. In the end all are joined."""
    table, join = _opened(variant)
    joined = []
    for side, records in _in_order_of_arrival(stream, readings):
        if side == _TABLE:
            table.step(records, 0)
        else:
            joined.append(join.step(records, 0).emissions)
    return _numbers_of(pa.concat_tables([*joined, join.flush().emissions]), readings)


def _numbers_of(joined: pa.Table, readings: Sequence[Reading]) -> npt.NDArray[np.int64]:
    """Return the numbers of the readings, indexed by the numbers of the departures, which are their offsets."""
    numbers = {(reading.key, reading.timestamp): number for number, reading in enumerate(readings)}
    numbers_joined = np.empty(len(joined), np.int64)
    found = zip(joined["key"].to_pylist(), joined["valid_from"].to_pylist(), strict=True)
    numbers_joined[joined["offset"].to_numpy()] = [numbers.get(version, NOTHING) for version in found]
    return numbers_joined


_TABLE, _STREAM = 0, 1


def _opened(variant: Variant) -> tuple[TableHistoryState, StreamTableJoinState]:
    """Return the states of a table and of a join that reads it, of one partition each."""
    kept = TableHistory(variant.table)
    joined = StreamTableJoin(StreamTableJoinRules(table="weather", join="left", grace=variant.grace))
    table, join = kept.open(MemoryStorage(kept.layout)), joined.open(MemoryStorage(joined.layout))
    join.read_table(table)
    return table, join


def _in_order_of_arrival(stream: Sequence[Departure], readings: Sequence[Reading]) -> Iterator[tuple[int, Records]]:
    """Yield pieces of one side, then of the other: a reading arrives at its time, a departure when the aircraft leaves.

    Values do not matter here and are left out. The offset of a record is its number.
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
