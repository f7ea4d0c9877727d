"""Running an application in this process: until a signal arrives, or in the background with a handle."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from tidegate.application.display import Rows, table_html
from tidegate.application.options import Duration, duration_ms
from tidegate.application.program import let_workers_import
from tidegate.contracts.errors import EngineError, TidegateError, UserError
from tidegate.runtime import service
from tidegate.runtime.doctor.status import application_status
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import NoSuchTopic, client
from tidegate.runtime.spark.session import share_python_path
from tidegate.runtime.telemetry.log_lines import set_log_format
from tidegate.runtime.threads import in_background
from tidegate.state.lake.place import Place

if TYPE_CHECKING:
    from tidegate.runtime.batch_loop.driver import OperatorDriver
    from tidegate.runtime.configuration.application import Application as Configuration

POLL_S = 0.05
DRAIN_S = 20
"""Maximum time from SIGTERM to the end of the process: less than the 30 s that Kubernetes waits before it kills."""

_running: dict[tuple[str, Place], Handle] = {}
_starting = Lock()


def run(configuration: Configuration, folder: Path) -> None:
    """Run all operators until SIGTERM or Ctrl-C. `folder`: that of the program, for its functions."""
    if (running := _running.get(_key(configuration))) is not None and running.is_running:
        raise UserError("the application runs already", value=running, remedy="stop() that handle first")
    _check_has_operators(configuration)
    _let_functions_load(folder)
    service.configure_logging(service.TIMED)
    set_log_format(configuration, service.TIMED)
    service.run(configuration, list(configuration.operators))


def start(configuration: Configuration, folder: Path) -> Handle:
    """Start all operators in the background.

    If the application runs in this process already, return its handle; if that runs with other content, or one of its
    operators has failed, stop it first.
    """
    _check_has_operators(configuration)
    with _starting:
        running = _running.get(_key(configuration))
        if running is not None and running.is_running:
            if running.configuration == configuration and running.failure is None:
                return running
            with suppress(TidegateError):  # of an operator that ended before; it has been logged
                running.stop()
        _let_functions_load(folder)
        handle = _running[_key(configuration)] = Handle(configuration)
        _drain_on_sigterm()
    return handle


def _drain_on_sigterm() -> None:
    """Finish the current batches when the process is asked to end, unless the program handles that itself."""
    if current_thread() is main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _drain)


def _drain(number: int, frame: object) -> None:
    """Stop all running applications at once, then let the signal end the process; a second signal ends it at once.

    The process ends after DRAIN_S at the latest. The main thread, which this has interrupted, may hold a lock that the
    drain needs, such as Spark's while a session starts.
    """
    signal.signal(number, signal.SIG_DFL)
    limit = Timer(DRAIN_S, os.kill, (os.getpid(), number))
    limit.daemon = True
    limit.start()
    handles = list(_running.values())
    for handle in handles:
        handle.ask_to_stop()
    for handle in handles:
        with suppress(Exception):  # of an operator that ended before; it has been logged
            handle.stop()
    limit.cancel()
    os.kill(os.getpid(), number)


def _check_has_operators(configuration: Configuration) -> None:
    """Raise UserError if nothing would run."""
    if not configuration.operators:
        remedy = "define one, such as app.stream(TOPIC, name=...).suppress(...).to(TOPIC)"
        raise UserError("the application has no operators", value=configuration.application, remedy=remedy)


def _let_functions_load(folder: Path) -> None:
    """Let Spark's Python workers import modules beside the program, also those of a Spark that runs already."""
    let_workers_import(folder)
    share_python_path()


def _key(configuration: Configuration) -> tuple[str, Place]:
    return configuration.application, configuration.lake


class Handle:
    """A running application. As a context manager it stops at the end of the block."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.failure: Exception | None = None
        """The error of the first operator that has ended with one; others may still run."""
        self._stop = Event()
        self._drivers: Sequence[OperatorDriver] = ()
        self._ended: Future[None] = in_background(self._run, "tidegate application")

    def _run(self) -> None:
        names = list(self.configuration.operators)
        service.run(self.configuration, names, stop=self._stop, failed=self._failed, watch=self._watch)

    def _failed(self, error: Exception) -> None:
        self.failure = self.failure or error

    def _watch(self, drivers: Sequence[OperatorDriver]) -> None:
        self._drivers = drivers

    @property
    def is_running(self) -> bool:
        """Return whether the operators run; False after `stop`, and once all of them have ended."""
        return not self._ended.done()

    def stop(self) -> None:
        """Finish and publish the current batches, then end. Raise the error of an operator that had ended before."""
        self.ask_to_stop()
        self._ended.result()

    def ask_to_stop(self) -> None:
        """Let the operators finish and publish the current batches, without waiting for that."""
        self._stop.set()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop. The error of the block goes on; that of an operator is shown with it as its origin, or raised."""
        try:
            self.stop()
        except Exception as failure:
            if error is None:
                raise
            _chain(error, failure)

    def status(self) -> Statuses:
        """Return the status of each operator, by name: positions, lag, what is held, and why it makes progress."""
        return Statuses(application_status(self.configuration))

    def await_caught_up(self, timeout: Duration = "5m") -> None:
        """Wait until every record that is in the input topics now has been processed and its results published.

        Also wait until no record that is due waits for the table of a join any more. Operators that read what others of
        the application write come after these. Raise EngineError after the timeout, which says what an operator waits
        for, and the error of an operator that has ended.
        """
        deadline = time.monotonic() + duration_ms(timeout) / 1_000
        while len(self._drivers) < len(self.configuration.operators):
            self._pause(deadline, "Spark has not started")
        for driver in sorted(self._drivers, key=lambda driver: depth(driver.name, self.configuration)):
            self._check_running()
            topics = self.configuration.operators[driver.name].inputs
            targets = {topic: self._ends(topic, deadline) for topic in topics}
            while not driver.has_reached(targets):
                self._pause(
                    deadline, f"{driver.name} has not caught up" + (f": {driver.waits}" if driver.waits else "")
                )

    def _ends(self, topic: str, deadline: float) -> dict[int, int]:
        """Return the end of each partition. Wait until the topic exists; raise if the application ends before."""
        while True:
            try:
                return offsets.stable(client(self.configuration.kafka), topic)
            except NoSuchTopic:
                self._pause(deadline, f"there is no topic {topic}")

    def _pause(self, deadline: float, problem: str) -> None:
        """Wait a moment. Raise EngineError at the deadline, and the error of an operator that has ended."""
        self._check_running()
        if time.monotonic() > deadline:
            raise EngineError(problem, remedy="wait longer, or see why it makes no progress: handle.status()")
        time.sleep(POLL_S)

    def _check_running(self) -> None:
        """Raise the error of an operator that has ended, and UserError if the application has been stopped."""
        if self.failure is not None:
            raise self.failure
        if not self.is_running:
            self._ended.result()
            raise UserError("the application has been stopped", remedy="call start() again")

    def sql(self, query: str) -> Rows:
        """Return the result of a Spark SQL query over the views of all operators.

        Columns of equal names get a number: `key`, `key_2`. Raise UserError, which names the views, if Spark cannot run
        the query, for statements that change something, such as INSERT or DROP, which do not run, and if the operators
        take all slots of a cluster.
        """
        if not isinstance(query, str):
            raise UserError("a query is text", value=query, remedy="write a SELECT statement")
        from tidegate.runtime.spark.session import check_room, start_session
        from tidegate.runtime.spark.views import query as result_of

        settings, lake = self.configuration.spark, self.configuration.lake
        session = start_session(self.configuration.application, settings.master, settings.conf, lake)
        if self.is_running:
            check_room(session.sparkContext)
        return Rows(result_of(session, lake, self.configuration.operators, query))

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"<{self.configuration.application}: {state}, {', '.join(self.configuration.operators)}>"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()


def _chain(error: BaseException, before: BaseException) -> None:
    """Let a traceback of `error` show `before` above it, behind all that `error` came from."""
    while error is not before:
        origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if origin is None:
            before.__context__ = None  # else the two errors would be each other's origin
            error.__context__, error.__suppress_context__ = before, False
            return
        error = origin


def depth(name: str, configuration: Configuration) -> int:
    """Return how many operators of the application stand between this one and the topics that others write."""
    operators = configuration.operators
    config = operators[name]
    before = [other for other, each in operators.items() if any(out.topic in config.inputs for out in each.outputs())]
    before += [read.table for read in config.reads()]
    return max((1 + depth(other, configuration) for other in before), default=0)


class Statuses(dict[str, dict[str, Any]]):
    """The status of each operator, by name, as `tidegate status --json` shows it."""

    def _repr_html_(self) -> str:
        return table_html("status", list(self._rows()))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """One row per partition, or per operator that has read nothing yet."""
        for name, status in self.items():
            for each in status.get("partitions") or [status]:
                columns = {
                    column: each.get(column) for column in ("partition", "offset", "lag", "held", "late", "rejected")
                }
                yield {"operator": name, **columns, "why": each["why"]["text"]}
