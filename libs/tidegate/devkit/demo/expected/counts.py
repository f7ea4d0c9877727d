"""The expected counts of the demo's windows, computed with pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from tidegate.devkit.demo.departures import Departure, partition_of

Record = tuple[bytes | None, bytes | None, int]


class Counted(NamedTuple):
    """Departures counted in windows.

    `windows`: one row per window (partition, key, start, count, newest, final), in the order in which each partition
    closes them. `late`: departures that are in no window.
    """

    windows: pd.DataFrame
    late: list[Record]


def counted(
    stream: Sequence[Departure],
    key_of: Callable[[Departure], bytes],
    length_ms: int,
    advance_ms: int,
    grace_ms: int,
) -> Counted:
    """Return the counts of departures per key in windows of that length, one starting every `advance_ms`.

    A window accepts a departure if the window's end is after the partition's stream time minus the grace. A
    window is final if it accepts no more departures at the end of the input.
    """
    table = in_order_of_arrival(stream, key_of)
    places = _places(table, length_ms, advance_ms)
    taken = places[places.start + length_ms > places.newest_so_far - grace_ms]
    found = taken.groupby(["partition", "key", "start"], as_index=False).agg(
        count=("number", "size"), newest=("timestamp", "max"), first=("number", "min")
    )
    end_of_time = found.partition.map(table.groupby("partition").timestamp.max())
    found["final"] = found.start + length_ms <= end_of_time - grace_ms
    late = table.loc[table.index.difference(taken.number)]
    return Counted(
        found.sort_values(["partition", "start", "first"]).drop(columns="first"),
        [(key, stream[number].value, at) for number, key, at in zip(late.index, late.key, late.timestamp, strict=True)],
    )


def in_order_of_arrival(stream: Sequence[Departure], key_of: Callable[[Departure], bytes]) -> pd.DataFrame:
    """Return key, partition, time and the partition's stream time so far for each departure."""
    keys = [key_of(departure) for departure in stream]
    table = pd.DataFrame({"key": keys, "timestamp": [departure.timestamp for departure in stream]})
    table["partition"] = table.key.map(partition_of)
    table["newest_so_far"] = table.groupby("partition").timestamp.cummax()
    return table


def _places(table: pd.DataFrame, length_ms: int, advance_ms: int) -> pd.DataFrame:
    """Return each departure once per window that contains its time, with the start of the window."""
    last = table.timestamp // advance_ms * advance_ms
    hops = range(0, length_ms, advance_ms)
    places = pd.concat([table.assign(number=table.index, start=last - hop) for hop in hops])
    return places[places.start > places.timestamp - length_ms]
