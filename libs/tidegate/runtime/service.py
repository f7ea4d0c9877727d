"""Running the operators of an application in one process: what all services and `tidegate run` share.

Each operator has a driver in its own thread; all drivers share one Spark session. SIGTERM and SIGINT drain: the current
batch is committed and published, then the process ends.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event, current_thread, main_thread
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.spark.session import (
    Spark,
    is_on_this_machine,
    is_submitted,
    require_installed,
    running_spark,
    start_spark,
)
from tidegate.runtime.spark.starting import StartingSpark
from tidegate.runtime.telemetry.log_lines import log_fields
from tidegate.runtime.telemetry.telemetry import telemetry_of
from tidegate.runtime.workers.pool import workers_of
from tidegate.state.lease_decisions import Succession

Listener = Callable[[BatchMeta, dict[str, float]], None]

TIMED = "%(asctime)s %(levelname)s %(message)s"
PLAIN = "%(message)s"
"""Log line formats: `TIMED` for a service, `PLAIN` for a command that a person watches."""


def run(
    application: Application,
    names: Collection[str],
    *,
    until_caught_up: bool = False,
    listener: Listener = lambda meta, seconds: None,
    ready: Callable[[str], None] = lambda name: None,
    stop: Event | None = None,
    failed: Callable[[Exception], None] = lambda error: None,
    watch: Callable[[Sequence[OperatorDriver]], None] = lambda drivers: None,
    succession: Succession = Succession.REFUSE,
) -> None:
    """Run the operators until a signal arrives, `stop` is set, or commands have stopped all of them.

    `succession` says what is done about operators that another driver runs.
    `watch` is called with the drivers before they start, and `failed` with the error of an operator that ends. With
    `until_caught_up`, also end when the records present at startup are processed and published. If an operator fails,
    the others continue; after all have ended, the first operator's error is raised.
    """
    with (
        telemetry_of(application) as telemetry,
        stopped_by_signals(stop or Event()) as ended,
        session(application, on_start_failure=ended.set) as spark,
        workers_of(spark) as workers,
    ):
        notify = listener if telemetry is None else _combined(telemetry.note, listener)
        drivers = [
            OperatorDriver(
                Wiring(
                    spark=spark,
                    workers=workers,
                    application=application,
                    name=name,
                    listener=notify,
                    succession=succession,
                )
            )
            for name in names
        ]
        if telemetry is not None:
            telemetry.watch(drivers)
        watch(drivers)
        _run_all(drivers, ended, until_caught_up, ready, failed)


def _combined(one: Listener, other: Listener) -> Listener:
    def both(meta: BatchMeta, seconds: dict[str, float]) -> None:
        one(meta, seconds)
        other(meta, seconds)

    return both


@contextmanager
def session(application: Application, on_start_failure: Callable[[], None] | None = None) -> Iterator[Any]:
    """Yield a Spark session for the application. A session that is running already is used and left running.

    With `on_start_failure`, a local Spark starts in the background; if it fails to start, it is called and the error is
    raised at the end.
    """
    running = running_spark()
    spark = running or _started(application, on_start_failure)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def _started(application: Application, on_failure: Callable[[], None] | None) -> Spark | StartingSpark:
    named, master, conf = application.application, application.spark.master, application.spark.conf
    start = partial(start_spark, named, master, conf, application.lake)
    if on_failure is None or is_submitted() or not is_on_this_machine(application.spark.master):
        return start()
    require_installed()
    return StartingSpark(start, on_failure)


def _run_all(
    drivers: list[OperatorDriver],
    stop: Event,
    until_caught_up: bool,
    ready: Callable[[str], None],
    failed: Callable[[Exception], None],
) -> None:
    def one(driver: OperatorDriver) -> None:
        try:
            driver.run(stop, until_caught_up=until_caught_up, ready=lambda: ready(driver.name))
        except Exception as error:
            logging.getLogger("tidegate").error("%s has ended: %s", driver.name, error, extra=log_fields(driver.name))
            failed(error)
            raise

    with ThreadPoolExecutor(len(drivers)) as threads:
        ends = [threads.submit(one, driver) for driver in drivers]
        errors = [error for end in ends if (error := end.exception()) is not None]
    if errors:
        raise errors[0]


@contextmanager
def stopped_by_signals(stop: Event) -> Iterator[Event]:
    """Set the event on SIGTERM and SIGINT. Outside the main thread no signal handlers are installed."""
    if current_thread() is not main_thread():
        yield stop
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def configure_logging(line: str) -> None:
    """Log Tidegate's own lines in that format, and silence its libraries, which log errors that Tidegate retries."""
    logging.basicConfig(format=line)
    logging.getLogger("tidegate").setLevel(logging.INFO)
    for library in ("kafka", "py4j"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
