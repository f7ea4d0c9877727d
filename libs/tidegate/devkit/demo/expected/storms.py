"""The stormy hours that the demo's pipeline must find, computed with pandas.

A departure waits for its reading until stream time has come to its own time and the grace, so the time behind the join
is that of the departures less the grace: an hour is open for as long as it would be if it had that grace itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from tidegate.devkit.demo.departures import Departure
from tidegate.devkit.demo.expected.counts import in_order_of_arrival
from tidegate.devkit.demo.expected.readings import NOTHING
from tidegate.devkit.demo.weather import Reading

WIND_MPH, DELAY_MIN, FEW = 20, 15, 3
"""What makes a departure one of a storm, and how many an hour must have."""


class Storms(NamedTuple):
    """The hours with enough late departures in strong wind, once final: (airport, start, number, worst delay).

    `late`: the departures that came too late to be counted, as (airport, time).
    """

    hours: Counter[tuple[bytes, int, int, int]]
    late: Counter[tuple[bytes, int]]


def stormy_hours(
    stream: Sequence[Departure],
    readings: Sequence[Reading],
    met: npt.NDArray[np.int64],
    length_ms: int,
    grace_ms: int,
) -> Storms:
    """Return the stormy hours.

    `met`: the number of each departure's reading. `grace_ms`: that of the join and of the hours together.
    """
    table = in_order_of_arrival(stream, lambda departure: departure.airport)
    table["delay"] = [orjson.loads(departure.value)["delay_min"] for departure in stream]
    winds = [orjson.loads(reading.value)["wind_speed"] for reading in readings]
    table["wind"] = [winds[number] if number != NOTHING else None for number in met.tolist()]
    table["wind"] = pd.to_numeric(table["wind"])
    table["end"] = table.timestamp // length_ms * length_ms + length_ms
    stormy = table[(table.wind > WIND_MPH) & (table.delay > DELAY_MIN)]
    in_time = stormy.end > stormy.newest_so_far - grace_ms
    late = stormy[~in_time]
    hours = (
        stormy[in_time]
        .groupby(["partition", "key", "end"], as_index=False)
        .agg(count=("delay", "size"), worst=("delay", "max"))
    )
    final = hours[hours.end <= hours.partition.map(table.groupby("partition").timestamp.max()) - grace_ms]
    found = final[final["count"] >= FEW]
    return Storms(
        Counter(
            zip(
                found.key.tolist(),
                (found.end - length_ms).tolist(),
                found["count"].tolist(),
                found.worst.tolist(),
                strict=True,
            )
        ),
        Counter(zip(late.key.tolist(), late.timestamp.tolist(), strict=True)),
    )
