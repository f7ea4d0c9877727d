"""The demo's check of its pipeline: pandas expects what the shipped steps do, and wrong results are detected."""

from __future__ import annotations

import io
import random
from collections import Counter
from typing import Any

import orjson
import pytest
from rich.console import Console

from tidegate.contracts.records import Records, Row
from tidegate.devkit.demo import checks
from tidegate.devkit.demo.departures import PARTITIONS, Departure, partition_of
from tidegate.devkit.demo.expected.readings import expected_readings
from tidegate.devkit.demo.expected.storms import Storms, stormy_hours
from tidegate.devkit.demo.storms import Record, differences, show_checked
from tidegate.devkit.demo.weather import Reading
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for

pytestmark = pytest.mark.fast

MIN_MS = 60_000
HOUR_MS = 60 * MIN_MS
SHIPPED = checks.original().operators


def readings(drawn: random.Random) -> list[Reading]:
    """Two readings of each airport in three hours; some have no wind, and LGA has none at first."""
    hours = [(airport, hour) for airport in (b"EWR", b"JFK", b"LGA") for hour in range(0, 24, 2)]
    winds = (None, 5.0, 20.0, 21.5, 40.0)
    return [
        Reading(airport, orjson.dumps({"wind_speed": drawn.choice(winds)}), hour * HOUR_MS)
        for airport, hour in hours
        if (airport, hour) != (b"LGA", 0)
    ]


def departures(drawn: random.Random) -> list[Departure]:
    """They arrive up to four hours after each other, so some are too late for a grace of two hours."""
    scheduled = sorted(drawn.randrange(24 * 60) for _ in range(600))
    stream = [
        Departure(
            b"UA-" + drawn.choice((b"EWR", b"JFK", b"LGA")),
            orjson.dumps({"delay_min": drawn.choice((0, 15, 16, 60))}),
            minute * MIN_MS,
            0,
        )
        for minute in scheduled
    ]
    return sorted(stream, key=lambda each: each.timestamp + drawn.choice((0, 0, 0, drawn.randrange(240 * MIN_MS))))


def table(rows: list[Reading]) -> Any:
    operator = operator_for(SHIPPED["weather"])
    state = operator.open(MemoryStorage(operator.layout))
    state.step(Records.from_rows([Row(each.key, each.value, each.timestamp, at) for at, each in enumerate(rows)]), 0)
    return state


def played(stream: list[Departure], weather: list[Reading]) -> tuple[Storms, list[list[Record]]]:
    """What the shipped pipeline does with each partition, in batches of a hundred."""
    hours: Counter[tuple[bytes, int, int, int]] = Counter()
    late: Counter[tuple[bytes, int]] = Counter()
    output: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for partition in range(PARTITIONS):
        own = [each for each in stream if partition_of(each.airport) == partition]
        operator = operator_for(SHIPPED["late_storms"])
        state = operator.open(MemoryStorage(operator.layout))
        state.read_table(table([each for each in weather if partition_of(each.key) == partition]))
        rows = [Row(each.airport, each.value, each.timestamp, at) for at, each in enumerate(own)]
        for begin in range(0, len(rows), 100):
            done = state.step(Records.from_rows(rows[begin : begin + 100]), 0)
            for row in done.emissions.to_pylist():
                found = orjson.loads(row["value"])
                hours[row["key"], row["window_start"], found["n"], found["worst"]] += 1
                output[partition].append((row["key"], row["value"], row["timestamp"]))
            late.update((row["key"], row["timestamp"]) for row in done.late.to_pylist())
    return Storms(hours, late), output


@pytest.mark.parametrize("seed", range(5))
def test_what_pandas_expects_is_what_the_shipped_steps_do(seed: int) -> None:
    drawn = random.Random(seed)
    weather, stream = readings(drawn), departures(drawn)
    wanted = stormy_hours(stream, weather, expected_readings(stream, weather), HOUR_MS, 2 * HOUR_MS)
    found, output = played(stream, weather)
    assert wanted.hours and wanted.late
    assert differences(found, output, wanted) == []


def test_each_wrong_part_is_named() -> None:
    wanted = Storms(Counter([(b"JFK", 0, 3, 60)]), Counter([(b"JFK", 5)]))
    right: list[list[Record]] = [[(b"JFK", b'{"n":3,"worst":60}', 7)]]
    assert differences(wanted, right, wanted) == []
    assert differences(wanted._replace(hours=Counter([(b"JFK", 0, 3, 61)])), right, wanted) == ["hours"]
    assert differences(wanted._replace(late=Counter()), right, wanted) == ["late departures"]
    assert differences(wanted, [[]], wanted) == ["results in the output topic"]


@pytest.mark.parametrize(("different", "says"), [([], "Checked:"), (["hours"], "Wrong:")])
def test_the_outcome_is_printed_and_returned(different: list[str], says: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    assert show_checked(console, different, Storms(Counter(), Counter())) is not bool(different)
    assert says in console.file.getvalue()  # type: ignore[attr-defined]
