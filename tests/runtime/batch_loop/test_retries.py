"""Which errors are waited out, retried a few times, or raised; and what is logged meanwhile."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from tidegate.contracts.clock import SystemClock
from tidegate.contracts.errors import (
    BufferFull,
    EngineError,
    Fenced,
    OutputTooLarge,
    StateError,
    Superseded,
    TidegateError,
    Unavailable,
    UserError,
)
from tidegate.runtime.batch_loop import retries
from tidegate.runtime.batch_loop.claim import Overtaken
from tidegate.runtime.batch_loop.retries import PAUSES_S, Retries, pause_after
from tidegate.runtime.telemetry.driver_status import DriverStatusFile, one_line

pytestmark = pytest.mark.fast


def failing(*failures: TidegateError) -> Callable[[], str]:
    """Work that fails so, one failure a try, and then is done."""
    left = list(failures)

    def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


@pytest.fixture
def condition(tmp_path: Path) -> DriverStatusFile:
    return DriverStatusFile(tmp_path)


@pytest.fixture
def trying(condition: DriverStatusFile, monkeypatch: pytest.MonkeyPatch) -> Retries:
    monkeypatch.setattr(retries, "PAUSES_S", (0.0,) * len(PAUSES_S))
    return Retries("updates", condition)


@pytest.mark.parametrize("tries", [1, 8, 9, 10_000])
def test_outages_are_waited_out_without_limit(tries: int) -> None:
    assert 0 < pause_after(Unavailable("no broker"), tries) <= 4


@pytest.mark.parametrize("failure", [EngineError("spark"), Fenced("epoch"), Superseded("token")])
def test_other_failures_are_raised_after_a_few_retries(failure: TidegateError) -> None:
    assert pause_after(failure, len(PAUSES_S)) == PAUSES_S[-1]
    assert pause_after(failure, len(PAUSES_S) + 1) is None


@pytest.mark.parametrize(
    "failure",
    [
        OutputTooLarge("a record"),
        Overtaken("by a newer driver"),
        StateError("damaged"),
        UserError("password"),
        BufferFull("bound"),
        AssertionError("bug"),
    ],
)
def test_errors_that_a_retry_cannot_fix_are_raised_at_once(failure: Exception) -> None:
    assert pause_after(failure, 1) is None


def test_a_long_outage_does_not_use_up_the_tries_of_other_failures(trying: Retries) -> None:
    outage = [Unavailable("no broker")] * 50
    assert trying.run(failing(EngineError("spark"), *outage, EngineError("spark")), Event()) == "done"


def test_other_failures_between_outages_are_counted(trying: Retries) -> None:
    mixed = [EngineError("spark"), Unavailable("no broker")] * (len(PAUSES_S) + 1)
    with pytest.raises(EngineError, match="spark"):
        trying.run(failing(*mixed), Event())


def test_an_outage_is_reported_once_and_then_at_intervals_and_its_end_too(
    trying: Retries, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(0, 1_000, 8))  # seconds; a try each 8 s: told at 0, 32, 64, then its end at 80
    monkeypatch.setattr(SystemClock, "monotonic", lambda _clock: float(next(times) + 1))
    with caplog.at_level(logging.INFO, "tidegate"):
        trying.run(failing(*[Unavailable("no broker", value="host:1")] * 10), Event())
    assert [record.getMessage() for record in caplog.records] == [
        "updates waits, for 0 s: no broker (host:1)",
        "updates waits, for 32 s: no broker (host:1)",
        "updates waits, for 64 s: no broker (host:1)",
        "updates continues, after 80.0 s",
    ]


def test_a_stop_ends_the_wait(trying: Retries) -> None:
    stop = Event()

    def work() -> str:
        stop.set()
        raise Unavailable("no broker")

    assert trying.run(work, stop) is None


def test_the_status_shows_the_reason_of_a_wait_and_its_end(trying: Retries, condition: DriverStatusFile) -> None:
    seen = []

    def work() -> str:
        seen.append(condition.read())
        if len(seen) == 1:
            raise Unavailable("no broker", remedy="start it")
        return "done"

    trying.run(work, Event())
    assert (seen[1].state, seen[1].why) == ("waiting", "no broker: start it")
    assert condition.read().state == "running"


@pytest.mark.parametrize(
    ("error", "state"),
    [(Overtaken("newer"), "fenced"), (BufferFull("bound"), "bound reached"), (ValueError("bug"), "stopped")],
)
def test_the_end_of_a_driver_is_recorded_with_its_reason(
    condition: DriverStatusFile, error: Exception, state: str
) -> None:
    with pytest.raises(type(error)), condition.recording_run():
        raise error
    assert condition.read().state == state
    assert str(error) in condition.read().why


def test_a_drained_driver_is_reported_and_a_new_driver_clears_the_reason(condition: DriverStatusFile) -> None:
    with condition.recording_run():
        condition.write_recovered(3, "rebuild: gone")
        condition.write_unclear({2, 1})
        assert condition.read().recovered == {3: "rebuild: gone"}
        assert condition.read().unclear == (1, 2)
    assert condition.read().state == "drained"
    with condition.recording_run():
        assert (condition.read().state, condition.read().recovered) == ("starting", {})


@pytest.mark.parametrize("content", ["", "{", "[]", '{"state":"odd","since":1,"unclear":[],"recovered":{}}'])
def test_a_status_that_cannot_be_read_is_none(condition: DriverStatusFile, tmp_path: Path, content: str) -> None:
    (tmp_path / "condition.json").write_text(content)
    assert condition.read() is None


def test_the_status_is_written_only_if_it_changed(condition: DriverStatusFile, tmp_path: Path) -> None:
    condition.write("running")
    (tmp_path / "condition.json").write_text(json.dumps("touched"))
    condition.write("running")
    assert (tmp_path / "condition.json").read_text() == '"touched"'


def test_a_full_disk_overwrites_the_status_in_place(
    condition: DriverStatusFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition.write("stopped", "a longer reason than the next one")
    monkeypatch.setattr(Path, "write_text", _disk_full)
    condition.write("waiting", "disk full")
    assert (condition.read().state, condition.read().why) == ("waiting", "disk full")


def _disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_error_is_shown_on_one_line_whatever_its_value_contains() -> None:
    assert one_line(EngineError("no", value="a\n  b", remedy="do")) == "no (a b): do"
