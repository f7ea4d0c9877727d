"""The demo's checks of its join: which reading is right, and that a wrong result is detected."""

from __future__ import annotations

from collections import Counter

import pytest

from tidegate.devkit.demo.departures import PARTITIONS, Departure, partition_of
from tidegate.devkit.demo.expected.readings import NOTHING, expected_readings
from tidegate.devkit.demo.joining import Record, compared
from tidegate.devkit.demo.replay import joined_readings, variants
from tidegate.devkit.demo.weather import Reading

pytestmark = pytest.mark.fast

HOUR_MS = 3_600_000


def reading(airport: bytes, hour: int) -> Reading:
    return Reading(airport, b'{"hour":%d}' % hour, hour * HOUR_MS)


def departure(airport: bytes, scheduled: float, left: float) -> Departure:
    return Departure(b"UA-" + airport, b'{"delay":0}', int(scheduled * HOUR_MS), int(left * HOUR_MS))


#  readings  JFK 1      2      3      LGA 2
#  JFK departures scheduled 0.5 (none yet), 1.5, 2.1 that left at 1.9, 1.8 that left at 3.2; LGA at 2; JFK at 9
READINGS = [reading(b"JFK", 1), reading(b"JFK", 2), reading(b"LGA", 2), reading(b"JFK", 3)]
STREAM = [
    departure(b"JFK", 0.5, 0.5),
    departure(b"JFK", 1.5, 1.5),
    departure(b"JFK", 2.1, 1.9),
    departure(b"LGA", 2, 2.5),
    departure(b"JFK", 1.8, 3.2),
    departure(b"JFK", 9, 9),
]
RIGHT = [NOTHING, 0, 1, 2, 0, 3]


def test_the_expected_reading_is_the_newest_at_the_airport_up_to_the_scheduled_time() -> None:
    assert expected_readings(STREAM, READINGS).tolist() == RIGHT


@pytest.mark.parametrize(
    ("variant", "met"),
    [
        (0, RIGHT),
        (1, [NOTHING, 0, 0, 2, 0, 3]),  # 2.1 left before the reading of 2 came
        (2, [NOTHING, 0, 0, 2, 3, 3]),  # and 1.8 left after that of 3
    ],
)
def test_without_grace_early_departures_get_an_older_reading_and_without_history_late_ones_a_newer_one(
    variant: int, met: list[int]
) -> None:
    assert joined_readings(variants("1h", "30d")[variant], STREAM, READINGS).tolist() == met


def results() -> tuple[list[list[Record]], Counter[Record]]:
    """What a right join gives with a grace of 1 h: in each partition all but what is within 1 h of its newest."""
    out: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    waiting = Counter({(b"JFK", STREAM[5].value, STREAM[5].timestamp): 1})
    waiting[b"LGA", STREAM[3].value, STREAM[3].timestamp] += partition_of(b"LGA") != partition_of(b"JFK")
    for each, number in zip(STREAM, RIGHT, strict=True):
        table = b"null" if number == NOTHING else READINGS[number].value
        record = (each.airport, b'{"table": %b, "stream": %b}' % (table, each.value), each.timestamp)
        if (each.airport, each.value, each.timestamp) not in +waiting:
            out[partition_of(each.airport)].append(record)
    return out, +waiting


def is_right(out: list[list[Record]], waiting: Counter[Record]) -> bool:
    return compared(out, waiting, STREAM, READINGS, expected_readings(STREAM, READINGS), HOUR_MS).right


def test_a_result_with_a_wrong_reading_or_a_missing_record_fails_the_check() -> None:
    out, waiting = results()
    assert is_right(out, waiting)
    assert not is_right(out, Counter())
    jfk = partition_of(b"JFK")
    assert not is_right([*out[:jfk], out[jfk][1:], *out[jfk + 1 :]], waiting)
    key, value, timestamp = out[jfk][1]
    out[jfk][1] = (key, value.replace(b'"hour":1', b'"hour":2'), timestamp)
    assert not is_right(out, waiting)
