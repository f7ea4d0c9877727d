"""The lock by which commands detect a local driver, and the requests that they send to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, Timer
from time import sleep

import pytest

from tidegate.contracts.clock import SystemClock
from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.batch_loop.requests import Kind, Request, Requests

pytestmark = pytest.mark.fast


def test_a_driver_is_visible_while_it_runs(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)
    assert not command.is_driver_running()
    with driver.holding_lock():
        assert command.is_driver_running()
    assert not command.is_driver_running()


def test_looking_for_a_driver_leaves_no_trace(tmp_path: Path) -> None:
    Requests(tmp_path / "state").is_driver_running()
    assert not (tmp_path / "state").exists()


def test_after_a_takeover_the_newer_driver_takes_the_lock_once_it_is_free(tmp_path: Path) -> None:
    old, new, command = (Requests(tmp_path) for _ in range(3))
    with new.holding_lock():
        with old.holding_lock():  # cannot: the new one has it
            assert not old.take_lock()
        assert new.take_lock()
    with old.holding_lock(), new.holding_lock():
        assert not new.take_lock()
        old._release_lock()
        assert new.take_lock()
        assert command.is_driver_running()


def test_a_deleted_state_folder_does_not_hide_the_driver_for_long(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path / "state"), Requests(tmp_path / "state")
    with driver.holding_lock():
        shutil.rmtree(tmp_path / "state")
        assert not command.is_driver_running()
        assert driver.pending() == []
        assert driver.take_lock()
        assert command.is_driver_running()


@contextmanager
def answering(driver: Requests, answer: Callable[[Request], None]) -> Iterator[list[str]]:
    """A driver that answers each request after a moment; gives what was said with each, in order."""
    stop, said = Event(), list[str]()

    def drive() -> None:
        with driver.holding_lock():
            ready.set()
            while not stop.is_set():
                for request in driver.pending():
                    with suppress(FileNotFoundError):
                        said.append(driver.content(request))
                        sleep(0.05)
                        answer(request)
                sleep(0.01)

    ready = Event()
    thread = Thread(target=drive)
    thread.start()
    ready.wait()
    try:
        yield said
    finally:
        stop.set()
        thread.join()


def outcome(state: Path, kind: Kind, content: str) -> str:
    """What one asker is told."""
    try:
        Requests(state).ask(kind, 30, content)
    except UserError as error:
        return str(error.value)
    return "done"


def left(state: Path) -> list[str]:
    return [path.name for path in (state / "requests").glob("*")]


def test_a_request_waits_until_the_driver_has_carried_it_out(tmp_path: Path) -> None:
    with answering(driver := Requests(tmp_path), driver.done) as said:
        assert outcome(tmp_path, "flush", "all") == "done"
    assert (said, left(tmp_path)) == (["all"], [])


def test_each_of_two_requests_gets_its_own_answer(tmp_path: Path) -> None:
    """The second asks while the first one's request is being done."""
    driver = Requests(tmp_path)

    def answer(request: Request) -> None:
        if driver.content(request) == "first":
            driver.done(request)
        else:
            driver.refuse(request, UserError("not so"))

    with answering(driver, answer) as said, ThreadPoolExecutor(2) as askers:
        first = askers.submit(outcome, tmp_path, "apply", "first")
        sleep(0.02)
        second = askers.submit(outcome, tmp_path, "apply", "second")
        assert (first.result(), second.result()) == ("done", "not so")
    assert (said, left(tmp_path)) == (["first", "second"], [])


def test_requests_are_taken_in_the_order_of_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(tmp_path)
    for now, kind in enumerate(["flush", "apply", "compact", "apply"]):
        monkeypatch.setattr(SystemClock, "now_ms", lambda _clock, now=now: now)
        requests.put(kind)
    assert [request.kind for request in requests.pending()] == ["flush", "apply", "compact", "apply"]


def test_a_request_of_a_killed_command_is_cleared_when_a_driver_starts(tmp_path: Path) -> None:
    for kind in ("flush", "apply"):
        Requests(tmp_path).put(kind, "an old configuration")
    with Requests(tmp_path).holding_lock():
        assert Requests(tmp_path).pending() == []
        assert left(tmp_path) == []


def test_a_request_cleared_by_the_next_driver_was_not_carried_out(tmp_path: Path) -> None:
    """The driver that was asked has ended; another has started before the asker looked again."""
    old, asked = Requests(tmp_path), Requests(tmp_path)

    def take_over() -> None:
        old._release_lock()
        assert new.take_lock()

    new = Requests(tmp_path)
    with old.holding_lock(), new.holding_lock():
        timer = Timer(0.05, take_over)
        timer.start()
        with pytest.raises(EngineError, match="has not done it: flush"):
            asked.ask("flush", 30)
        timer.join()


def test_if_the_driver_ends_meanwhile_that_is_reported_and_the_request_withdrawn(tmp_path: Path) -> None:
    driver, command = Requests(tmp_path), Requests(tmp_path)
    with pytest.raises(EngineError, match="has not done it: compact"):
        command.ask("compact", timeout_s=30)
    assert driver.pending() == []


NOWHERE = UserError("the topic does not exist", value="nowhere", remedy="create it")


def test_a_refused_request_is_answered_with_the_reason_once(tmp_path: Path) -> None:
    driver = Requests(tmp_path)
    with answering(driver, lambda request: driver.refuse(request, NOWHERE)):
        with pytest.raises(UserError, match="refused it: apply") as refused:
            Requests(tmp_path).ask("apply", 30)
        assert refused.value.value == "the topic does not exist: nowhere"
        assert refused.value.remedy == "create it"
        assert left(tmp_path) == []
    with answering(driver, driver.done):
        assert outcome(tmp_path, "apply", "") == "done"


@pytest.mark.parametrize("why", ["the topic does not exist: nowhere", "42", '["nowhere"]', '{"why": "nowhere"}', ""])
def test_the_reason_of_a_driver_of_an_earlier_version_is_plain_text(tmp_path: Path, why: str) -> None:
    """A driver goes on with its own version while commands are of a newer one; up to then it wrote the reason alone."""

    def refuse(request: Request) -> None:
        path = tmp_path / "requests" / f"{request.id}.{request.kind}"
        path.with_suffix(".refused").write_text(why)
        path.unlink()

    with answering(Requests(tmp_path), refuse):
        with pytest.raises(UserError, match="refused it: apply") as refused:
            Requests(tmp_path).ask("apply", 30)
        assert refused.value.value == why
        assert refused.value.remedy.startswith("fix the cause and repeat the request")
        assert left(tmp_path) == []


def test_an_answer_to_a_withdrawn_request_is_not_an_error(tmp_path: Path) -> None:
    driver = Requests(tmp_path)
    with driver.holding_lock():
        request = driver.put("apply")
        (tmp_path / "requests" / f"{request.id}.apply").unlink()
        driver.done(request)
        assert left(tmp_path) == []
