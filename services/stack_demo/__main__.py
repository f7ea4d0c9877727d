"""`make stack-demo`: run January 2013 through the services of the stack and check the results with independent code.

It runs beside the services: it produces to Kafka, waits for them, and reads their results through Spark SQL.
"""

from __future__ import annotations

import argparse
import sys
import time
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from services.stack_demo.month import (
    DAYS,
    Month,
    by_airport,
    by_carrier,
    by_day,
    holds,
    month,
    of_table,
    produce_missing,
)
from services.stack_demo.waiting import wait_for
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.devkit.demo import checks
from tidegate.devkit.demo.checks import CHECKS, WEATHER, Results
from tidegate.devkit.demo.departures import departures
from tidegate.devkit.demo.topics import topics_of
from tidegate.devkit.produce_consume import read_all
from tidegate.runtime.configuration.application import Application, load
from tidegate.runtime.spark.session import start_session
from tidegate.spark import register_views

BETWEEN_DAYS_S = 1.0
"""Pause between days, so that the services see many batches instead of one."""

console = Console(width=120)


def main() -> int:
    """Run January through the services. Return 0 if their results are what independent code expects, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--days", type=int, default=DAYS, help="how many days of January 2013 (default: all)")
    arguments = parser.parse_args()
    application, input_ = load(arguments.file), month(arguments.days, departures())
    _produce(application, input_)
    console.print("waiting for the services")
    wait_for(application, application.operators)
    spark = start_session("stack-demo", "local[1]")
    try:
        register_views(spark, application)
        results = Results(console=console, spark=spark, application=application, **input_._asdict())
        right = [checks.check(results, operator) for operator in CHECKS]
    finally:
        spark.stop()
    console.print(f"Output: {_digest(application)}")
    return 0 if all(right) else 1


def _produce(application: Application, input_: Month) -> None:
    """Produce the input: first the table, which must be complete before the join reads it, then the days in order."""
    options = application.kafka
    produce_missing(options, "weather", of_table(input_.readings))
    wait_for(application, [WEATHER])
    stream, departed = input_.departures, 0
    for day, left in by_day(stream):
        departed += len(left)
        new = produce_missing(options, "departures", by_carrier(stream[:departed]))
        if new + produce_missing(options, "departures-by-airport", by_airport(stream[:departed])):
            console.print(f"produced the departures of {day} January: {new:,}")
            time.sleep(BETWEEN_DAYS_S)
    if not holds(options, "departures", by_carrier(stream)):
        remedy = "start again with empty volumes: `docker-compose down --volumes`, then `make up`"
        raise UserError("the topic `departures` holds more than these days", value=len(stream), remedy=remedy)


def _digest(application: Application) -> str:
    """Return a hash of all records of all topics, in order: the same after every undisturbed run."""
    digest = sha256()
    for topic in topics_of(application):
        for number, partition in enumerate(read_all(application.kafka, topic)):
            digest.update(repr((topic, number, partition)).encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TidegateError as error:
        console.print(f"[red]{error}[/]")
        sys.exit(1)
