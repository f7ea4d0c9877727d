"""The first days of January 2013, of the demo's input, and what of them is to be produced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from services.demo.departures import PARTITIONS, Departure, partition_of
from services.demo.weather import Reading, readings
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.offsets import latest

DAYS = 31
_DAY_MS = 86_400_000
_JANUARY = datetime(2013, 1, 1, 5, tzinfo=UTC)
"""Midnight in New York."""

Row = tuple[int, bytes, bytes, int]
"""Partition, key, value, event time in ms."""


class Month(NamedTuple):
    """Departures that left by the end of the last day, in order, and all readings of the month."""

    departures: list[Departure]
    readings: list[Reading]


def month(days: int, year: Sequence[Departure]) -> Month:
    """The year's departures of so many days; the readings are those of the whole month, whatever the days."""
    return Month(
        [departure for departure in year if departure.left < _midnight(days)],
        [reading for reading in readings() if reading.timestamp < _midnight(DAYS)],
    )


def by_day(stream: Sequence[Departure]) -> Iterator[tuple[int, list[Departure]]]:
    """The departures of each day, the first one is 1."""
    for day, left in groupby(stream, lambda departure: (departure.left - _midnight(0)) // _DAY_MS + 1):
        yield day, list(left)


def by_carrier(stream: Sequence[Departure]) -> list[Row]:
    """As records of the topic `departures`."""
    return [(partition_of(each.key), each.key, each.value, each.timestamp) for each in stream]


def by_airport(stream: Sequence[Departure]) -> list[Row]:
    """As records of the topic `departures-by-airport`."""
    return [(partition_of(each.airport), each.airport, each.value, each.timestamp) for each in stream]


def of_table(read: Sequence[Reading]) -> list[Row]:
    """As records of the topic `weather`."""
    return [(partition_of(reading.key), *reading) for reading in read]


def produce_missing(options: Mapping[str, str], topic: str, rows: Sequence[Row]) -> int:
    """The topic holds the rows, in order; how many of them are new: as many as it has are there already.

    Several runs with more and more days add up to one run with all of them.
    """
    there = latest(client(options), topic)
    new, passed = [], Counter[int]()
    for row in rows:
        passed[row[0]] += 1
        if passed[row[0]] > there[row[0]]:
            new.append(row)
    return write_all(options, topic, new)


def holds(options: Mapping[str, str], topic: str, rows: Sequence[Row]) -> bool:
    """Whether the topic has as many records in each partition as these rows."""
    there, wanted = latest(client(options), topic), Counter(row[0] for row in rows)
    return all(there[partition] == wanted[partition] for partition in range(PARTITIONS))


def _midnight(days: int) -> int:
    return int(_JANUARY.timestamp() * 1_000) + days * _DAY_MS
