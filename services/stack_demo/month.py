"""The first days of January 2013 from the demo's input, and the part of them that is still to be produced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from tidegate.devkit.demo.departures import PARTITIONS, Departure, partition_of
from tidegate.devkit.demo.weather import Reading, readings
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
    """Flights that took off by the end of the last day, in order, and all weather readings of the month."""

    departures: list[Departure]
    readings: list[Reading]


def month(days: int, year: Sequence[Departure]) -> Month:
    """Return the departures of the first `days` days, with the readings of the whole month."""
    return Month(
        [departure for departure in year if departure.left < _midnight(days)],
        [reading for reading in readings() if reading.timestamp < _midnight(DAYS)],
    )


def by_day(stream: Sequence[Departure]) -> Iterator[tuple[int, list[Departure]]]:
    """Yield the departures of each day; the first day is 1."""
    for day, left in groupby(stream, lambda departure: (departure.left - _midnight(0)) // _DAY_MS + 1):
        yield day, list(left)


def by_carrier(stream: Sequence[Departure]) -> list[Row]:
    """Return records of the topic `departures`."""
    return [(partition_of(each.key), each.key, each.value, each.timestamp) for each in stream]


def by_airport(stream: Sequence[Departure]) -> list[Row]:
    """Return records of the topic `departures-by-airport`."""
    return [(partition_of(each.airport), each.airport, each.value, each.timestamp) for each in stream]


def of_table(read: Sequence[Reading]) -> list[Row]:
    """Return records of the topic `weather`."""
    return [(partition_of(reading.key), *reading) for reading in read]


def produce_missing(options: Mapping[str, str], topic: str, rows: Sequence[Row]) -> int:
    """Produce the rows that the topic does not have yet, in order, and return their number.

    A partition that has n records is assumed to have the first n of its rows. So several runs with more and more days
    add up to one run with all days.
    """
    there = latest(client(options), topic)
    new, passed = [], Counter[int]()
    for row in rows:
        passed[row[0]] += 1
        if passed[row[0]] > there[row[0]]:
            new.append(row)
    return write_all(options, topic, new)


def holds(options: Mapping[str, str], topic: str, rows: Sequence[Row]) -> bool:
    """Return True if the topic has as many records in each partition as these rows."""
    there, wanted = latest(client(options), topic), Counter(row[0] for row in rows)
    return all(there[partition] == wanted[partition] for partition in range(PARTITIONS))


def _midnight(days: int) -> int:
    return int(_JANUARY.timestamp() * 1_000) + days * _DAY_MS
