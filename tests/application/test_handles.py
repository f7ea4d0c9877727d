"""Handles of applications whose operators only wait: what start, stop and signals do to them, without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Timer
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tests.patience import PATIENCE_S
from tidegate.application import running
from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.kafka.client import NoSuchTopic

pytestmark = pytest.mark.fast


class Waiting:
    """Operators that wait until they are to stop. `error`: what they raise then, as one that failed before would.

    `fail_early`: the error is reported at the start, while other operators still run. `deaf`: they do not stop.
    `waits`: what their due records wait for.
    """

    def __init__(self) -> None:
        self.error: EngineError | None = None
        self.fail_early = self.deaf = False
        self.waits = ""
        self.stopped: list[str] = []

    def run(
        self,
        application: Any,
        names: list[str],
        *,
        stop: Event,
        failed: Callable[[Exception], None],
        watch: Callable[[list[Any]], None],
    ) -> None:
        """Wait for `stop`."""
        caught_up = {"departures": {0: 5}}
        reached = {"has_reached": lambda targets: targets == caught_up and not self.waits, "waits": self.waits}
        watch([SimpleNamespace(name=name, **reached) for name in names])
        if self.fail_early and self.error is not None:
            failed(self.error)
        (Event() if self.deaf else stop).wait(30)
        self.stopped.append(application.application)
        if self.error is not None:
            raise self.error


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    """The operators of all applications; the process's paths and its signal handler are restored."""
    operators = Waiting()
    monkeypatch.setattr(running.service, "run", operators.run)
    monkeypatch.setattr(running, "_running", {})
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setenv("PYTHONPATH", "")
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield operators
    signal.signal(signal.SIGTERM, before)


def application(folder: Path, name: str = "flights", limit: str = "30s") -> tg.Application:
    app = tg.Application(name, kafka="x:1", lake=folder, keep_output="30d")
    app.stream("departures", name="updates").suppress(tg.time_limit(limit)).keep()
    return app


def test_a_refused_run_leaves_the_running_application_closed_for_definitions(waiting: Waiting, tmp_path: Path) -> None:
    app = application(tmp_path)
    with app.start():
        with pytest.raises(UserError, match="runs already"):
            app.run()
        with pytest.raises(UserError, match="cannot change while the application runs"):
            app.stream("arrivals", name="other")
    app.stream("arrivals", name="other")


def test_a_changed_application_starts_although_an_operator_of_the_running_one_has_failed(
    waiting: Waiting, tmp_path: Path
) -> None:
    waiting.error = EngineError("an operator had failed")
    first = application(tmp_path).start()
    second = application(tmp_path, limit="1m").start()
    assert not first.is_running and second.is_running
    waiting.error = None
    second.stop()


def test_an_application_can_start_again_after_a_failure(waiting: Waiting, tmp_path: Path) -> None:
    app = application(tmp_path)
    waiting.error = EngineError("an operator had failed")
    failed = app.start()
    for _ in range(2):
        with pytest.raises(EngineError, match="had failed"):
            failed.stop()
    waiting.error = None
    with app.start() as again:
        assert again is not failed and again.is_running
    again.stop()


def test_sigterm_drains_every_running_application_also_after_a_restart(
    waiting: Waiting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application(tmp_path).start().stop()
    handles = [application(tmp_path, name).start() for name in ("flights", "trains")]
    waiting.stopped.clear()
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(running.os, "kill", lambda *each: killed.append(each))
    signal.raise_signal(signal.SIGTERM)
    assert not [thread for thread in enumerate_threads() if isinstance(thread, Timer) and not thread.finished.is_set()]
    assert sorted(waiting.stopped) == ["flights", "trains"]
    assert not any(handle.is_running for handle in handles)
    assert killed == [(os.getpid(), signal.SIGTERM)] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


DEAF = """
import signal, sys, threading, time
from pathlib import Path
import tidegate as tg
from tidegate.application import running

running.DRAIN_S = 1
running.service.run = lambda *given, **options: time.sleep(60)
app = tg.Application("flights", kafka="x:1", lake=Path(sys.argv[1]), keep_output="30d")
app.stream("departures", name="updates").suppress(tg.time_limit("30s")).keep()
app.start()
with threading.Lock() as held:
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.process
def test_sigterm_ends_the_process_in_time_although_the_drain_does_not_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DEAF, str(tmp_path)]
    ran = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert ran.stdout is not None and ran.stdout.readline() == "ready\n"
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(timeout=PATIENCE_S) == -signal.SIGTERM
    finally:
        ran.kill()


def test_an_application_of_which_an_operator_has_failed_starts_again_while_others_run(
    waiting: Waiting, tmp_path: Path
) -> None:
    app = application(tmp_path)
    waiting.error, waiting.fail_early = EngineError("an operator had failed"), True
    failed = app.start()
    assert failed.is_running
    with pytest.raises(EngineError, match="had failed"):
        failed.await_caught_up("1m")
    waiting.error = None
    with app.start() as again:
        assert again is not failed and again.failure is None and not failed.is_running
        assert app.start() is again


@pytest.fixture
def late_topic(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of topics that were asked for; the first two times the topic does not exist."""
    asked: list[str] = []

    def stable(client: object, topic: str) -> dict[int, int]:
        asked.append(topic)
        if len(asked) <= 2:
            raise NoSuchTopic(f"topic {topic} does not exist")
        return {0: 5}

    monkeypatch.setattr(running, "client", lambda options: None)
    monkeypatch.setattr(running.offsets, "stable", stable)
    return asked


def test_await_caught_up_waits_for_a_missing_topic(waiting: Waiting, tmp_path: Path, late_topic: list[str]) -> None:
    with application(tmp_path).start() as handle:
        handle.await_caught_up("1m")
    assert late_topic == ["departures"] * 3


def test_await_caught_up_for_a_missing_topic_ends_with_the_error_of_the_operator_that_reads_it(
    waiting: Waiting, tmp_path: Path, late_topic: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with application(tmp_path).start() as handle:
        monkeypatch.setattr(
            running.time, "sleep", lambda seconds: handle._failed(EngineError("an operator has failed"))
        )
        with pytest.raises(EngineError, match="an operator has failed"):
            handle.await_caught_up("1m")


def test_await_caught_up_waits_for_what_waits_for_a_table_and_says_so_at_its_timeout(
    waiting: Waiting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.offsets, "stable", lambda kafka, topic: {0: 5})
    waiting.waits = "due records wait until the table weather has read further"
    with application(tmp_path).start() as handle:
        with pytest.raises(EngineError, match="updates has not caught up: due records wait until the table weather"):
            handle.await_caught_up("10ms")
        handle._drivers[0].has_reached = lambda targets: True  # type: ignore[attr-defined]
        handle.await_caught_up("10s")


def test_the_error_of_a_block_goes_on_and_that_of_an_operator_is_its_origin(waiting: Waiting, tmp_path: Path) -> None:
    waiting.error = EngineError("an operator had failed")
    with pytest.raises(KeyError, match="of the block") as caught, application(tmp_path).start():
        raise KeyError("of the block") from ValueError("its cause")
    assert isinstance(caught.value.__cause__, ValueError)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.index("an operator had failed") < shown.index("its cause") < shown.index("of the block")
    with pytest.raises(KeyError) as caught, application(tmp_path).start():
        raise KeyError("of the block") from None
    assert caught.value.__context__ is waiting.error


def test_the_error_of_an_operator_that_ends_the_block_is_raised_as_it_is(waiting: Waiting, tmp_path: Path) -> None:
    waiting.error = EngineError("an operator had failed")
    with pytest.raises(EngineError) as caught, application(tmp_path).start() as handle:
        handle.ask_to_stop()
        handle.stop()
    assert caught.value is waiting.error and caught.value.__context__ is None


def test_an_application_without_operators_neither_runs_nor_starts(waiting: Waiting, tmp_path: Path) -> None:
    app = tg.Application("flights", kafka="x:1", lake=tmp_path, keep_output="30d")
    for begin in (app.run, app.start):
        with pytest.raises(UserError, match="has no operators"):
            begin()


def test_a_handler_of_the_program_itself_stays(waiting: Waiting, tmp_path: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with application(tmp_path).start():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
