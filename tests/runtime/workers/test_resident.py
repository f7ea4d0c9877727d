"""Both ends of a worker's connection, in this process."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import pytest

from tests.patience import PATIENCE_S, wait_for
from tidegate.contracts.errors import EngineError
from tidegate.runtime.task.messages import Attempt
from tidegate.runtime.workers.connection import Door, connect, hang_up
from tidegate.runtime.workers.lanes import Item, Lane, WorkerLost
from tidegate.runtime.workers.messages import Hello, Seat, Site
from tidegate.runtime.workers.resident import GIVEN_UP, Resident
from tidegate.runtime.workers.site import STATE, own_state_folder, site

pytestmark = pytest.mark.fast

noted: list[str] = []
waits: SimpleQueue[tuple[Event, Event]] = SimpleQueue()


def note(name: str) -> str:
    noted.append(name)
    return name


def wait_in_work() -> None:
    began, go_on = waits.get()
    began.set()
    assert go_on.wait(PATIENCE_S)


class Worker:
    """A resident on a thread, the lane to it, and the exit codes with which its process would have ended."""

    def __init__(self, state: Path | None = None) -> None:
        ours, theirs = socket.socketpair()
        self.ended: list[int] = []
        self.connection, self.lost = Connection(ours.detach()), Event()
        self.lane = Lane(self.lost.set)
        resident = Resident(Connection(theirs.detach()), state, self.ended.append)
        self.thread = Thread(target=self._run, args=(resident,), daemon=True)
        self.thread.start()

    @staticmethod
    def _run(resident: Resident) -> None:
        with suppress(OSError):  # the driver has hung up before the answer
            resident.run()

    def go(self) -> Worker:
        """The driver is connected."""
        self.lane.connected(self.connection, Hello(0, "batch", Site("machine", "", "1"), 2))
        return self

    def put(self, owner: str, function: Any, *arguments: Any) -> Any:
        """The future of an item's answer."""
        item = Item(owner, function, arguments)
        self.lane.put(item)
        return item.answer


@pytest.fixture
def worker() -> Iterator[Worker]:
    started = Worker()
    yield started
    started.lane.lose("the test is over")
    hang_up(started.connection)
    started.thread.join(PATIENCE_S)


@pytest.fixture
def waiting() -> tuple[Event, Event]:
    """Set when `wait_in_work` has begun, and lets it go on."""
    events = Event(), Event()
    waits.put(events)
    return events


def test_items_wait_for_the_connection_and_are_done_in_turns_of_their_owners(worker: Worker) -> None:
    noted.clear()
    answers = [worker.put(name[0], note, name) for name in ("a1", "a2", "a3", "b1")]
    worker.go()
    assert [answer.result(10) for answer in answers] == ["a1", "a2", "a3", "b1"]
    assert noted == ["a1", "b1", "a2", "a3"]


def test_an_error_of_the_work_reaches_its_owner_alone_and_shows_its_trace(worker: Worker) -> None:
    worker.go()
    wrong, right = worker.put("a", int, "no number"), worker.put("a", int, "7")
    with pytest.raises(EngineError, match="task of a worker failed") as failed:
        wrong.result(10)
    assert not isinstance(failed.value, WorkerLost)
    assert "ValueError" in str(failed.value)
    assert "Traceback" in failed.value.__notes__[0]
    assert right.result(10) == 7


def test_what_cannot_be_sent_fails_alone(worker: Worker) -> None:
    worker.go()
    assert isinstance(worker.put("a", len, Lock()).exception(10), TypeError)
    assert worker.put("a", int, "7").result(10) == 7


def test_what_cannot_be_sent_back_fails_alone(worker: Worker) -> None:
    worker.go()
    assert isinstance(worker.put("a", Lock).exception(10), EngineError)
    assert worker.put("a", int, "7").result(10) == 7


def test_a_lost_process_fails_its_work_and_what_waits_and_ends_if_it_still_worked(
    worker: Worker, waiting: tuple[Event, Event]
) -> None:
    began, go_on = waiting
    answers = [worker.go().put("a", wait_in_work), worker.put("b", int, "7")]
    assert began.wait(PATIENCE_S)
    worker.lane.lose("a worker was lost")
    for answer in answers:
        assert isinstance(answer.exception(10), WorkerLost)
    assert worker.lost.wait(PATIENCE_S)
    assert isinstance(worker.put("c", int, "7").exception(10), WorkerLost)
    wait_for(lambda: worker.ended == [GIVEN_UP])
    go_on.set()


def test_an_idle_process_returns_when_the_driver_hangs_up(worker: Worker) -> None:
    assert worker.go().put("a", int, "7").result(10) == 7
    worker.lane.lose("the application has stopped")
    worker.thread.join(PATIENCE_S)
    assert not worker.thread.is_alive()
    assert worker.ended == []


def test_signs_of_life_come_in_the_middle_of_work(worker: Worker, waiting: tuple[Event, Event]) -> None:
    began, go_on = waiting
    answer = worker.go().put("a", wait_in_work)
    assert began.wait(PATIENCE_S)
    worker.lane.look()
    wait_for(lambda: worker.lane.silent == 0)
    go_on.set()
    answer.result(10)


def test_only_who_has_the_key_is_welcome_and_a_silent_stranger_keeps_nobody_waiting() -> None:
    guests: SimpleQueue[Connection] = SimpleQueue()
    door = Door("127.0.0.1", b"right", guests.put)
    with socket.create_connection(("127.0.0.1", door.port)):
        with pytest.raises((AuthenticationError, EOFError, OSError)):
            connect("127.0.0.1", door.port, b"wrong")
        friend = connect("127.0.0.1", door.port, b"right")
        friend.send("hello")
        with guests.get(timeout=PATIENCE_S) as guest:
            assert guest.recv() == "hello"
        assert guests.empty()
        friend.close()
    door.close()
    with pytest.raises(OSError):
        connect("127.0.0.1", door.port, b"right")


def test_a_worker_with_a_state_folder_of_its_own_uses_that_instead_of_the_configured_one(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "own").go()
    attempt: Any = Attempt(
        operator="op",
        config=None,  # type: ignore[arg-type]
        topic="in",
        log=None,  # type: ignore[arg-type]
        version=1,
        log_format=3,
        table_id="id",
        state=tmp_path / "configured",
        epoch=1,
        batch=1,
        attempt="a",
        clock=0,
    )
    item = Item("driver", attrgetter("state"), (), attempt)
    worker.lane.put(item)
    assert item.answer.result(10) == tmp_path / "own"
    worker.lane.lose("the test is over")


def test_the_state_folder_of_an_executor_may_be_relative_to_its_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(STATE, raising=False)
    assert own_state_folder() is None
    assert site().disk == str(os.getppid())
    monkeypatch.setenv(STATE, "./state")
    assert own_state_folder() == tmp_path / "state"
    assert site().disk == str(tmp_path / "state")
    assert site().executor == ""


def test_the_key_is_never_shown() -> None:
    assert "secret" not in repr(Seat(1, "here", 2, b"secret"))


@pytest.mark.process
def test_a_process_beside_a_worker_ends_in_silence_when_its_driver_hangs_up() -> None:
    door = Door("127.0.0.1", b"key", lambda connection: connection.close())
    command = [sys.executable, "-m", "tidegate.runtime.workers.beside"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        pickle.dump((Seat(0, "127.0.0.1", door.port, b"key"), "beside", Site("machine", "", "1")), process.stdin)
        process.stdin.flush()  # and it stays open: the worker lives
        told = process.stderr.read()
        assert (process.wait(PATIENCE_S), told) == (0, b"")
    door.close()
