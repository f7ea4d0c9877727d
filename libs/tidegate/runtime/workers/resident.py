"""A worker's process: it takes work from its connection to the driver until that is closed.

Work runs in the main thread, one item at a time. Two threads beside it read messages and give signs of life. If the
connection closes while work runs, the driver has given this process up, and the process ends at once: its attempt is
over, and a newer one may be at work on the same state.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from pyspark import TaskContext

from tidegate.runtime.workers.connection import connect, hang_up
from tidegate.runtime.workers.messages import Alive, BesideName, Done, Failed, Hello, LaneName, Seat, Site, Work, send
from tidegate.runtime.workers.site import own_state_folder, site

ALIVE_EVERY_S = 0.5
GIVES_WAY = 10
"""By how much a process for the background is nicer than its worker: it gets a tenth of a core that others want too."""
GIVEN_UP = 3
"""The exit code of a process whose connection closed while it worked."""


def reside(seat: Seat) -> None:
    """Work for the driver until it closes the connection. Runs in a Spark task.

    A task that Spark has started again does nothing: its driver has started a replacement already.
    """
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        return
    with suppress(OSError, EOFError), _children_ended():  # errors of a connection: the driver has gone
        _work(seat, "batch", site())


def start_beside(seat: Seat, lane: BesideName) -> None:
    """Start a process that works beside this one, connects to the driver by itself, and ends with this one.

    It is a process of its own, so that it can be ended in the middle of its work, and so that batches need not share
    Python's global lock with it. One for the background gives way to this process and to others of its priority.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "tidegate.runtime.workers.beside"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    _children.append(child)
    if lane == "background":
        os.setpriority(os.PRIO_PROCESS, child.pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY))
    if child.stdin is None:
        raise AssertionError("the child has a pipe")
    pickle.dump((seat, lane, site()), child.stdin)
    child.stdin.flush()


_children: list[subprocess.Popen[bytes]] = []


@contextmanager
def _children_ended() -> Iterator[None]:
    """End the processes beside this one after the block: each ends when its standard input is closed."""
    try:
        yield
    finally:
        for child in _children:
            if child.stdin is not None:
                child.stdin.close()
            child.wait()
        _children.clear()


def work_beside() -> None:
    """Work for the driver as a process beside a worker, which gives the seat on standard input, until either ends."""
    seat, lane, where = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_parent, name="end of the worker", daemon=True).start()
    with suppress(OSError, EOFError):
        _work(seat, lane, where)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):  # not by sys.stdin, whose lock this thread would keep at the exit
        pass
    os._exit(GIVEN_UP)


def _work(seat: Seat, lane: LaneName, where: Site) -> None:
    connection = connect(seat.host, seat.port, seat.key)
    send(connection, Hello(seat.number, lane, where, os.getpid()))
    Resident(connection, own_state_folder()).run()


class Resident:
    """The process's end of the connection."""

    def __init__(
        self, connection: Connection, state: Path | None = None, end: Callable[[int], object] = os._exit
    ) -> None:
        self._connection, self._end = connection, end
        self._own: dict[str, Any] = {} if state is None else {"state": state}
        self._inbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._sending, self._state = Lock(), Lock()
        self._busy, self._closed = False, Event()
        self._common: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        """Do the work that comes, in order, until the driver closes the connection."""
        threads = [Thread(target=work, name=name, daemon=True) for name, work in self._threads().items()]
        for thread in threads:
            thread.start()
        try:
            while (work := self._inbox.get()) is not None:
                answer = self._answer(work)
                with self._state:
                    self._busy = False
                self._send_answer(answer)
        finally:
            hang_up(self._connection)
            for thread in threads:
                thread.join()
            self._connection.close()

    def _threads(self) -> dict[str, Callable[[], None]]:
        return {"messages of the driver": self._read, "signs of life": self._give_signs}

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                work = self._connection.recv_bytes()
                with self._state:
                    self._busy = True
                self._inbox.put(work)
        self._closed.set()
        with self._state:
            # rule: given-up-ends
            if self._busy:
                self._end(GIVEN_UP)
        self._inbox.put(None)

    def _give_signs(self) -> None:
        with suppress(OSError):
            while not self._closed.wait(ALIVE_EVERY_S):
                self._send(Alive())

    def _answer(self, message: bytes) -> Done | Failed:
        try:
            work: Work = pickle.loads(message)  # here, where an error of it is an answer
            if work.common is not None:
                self._common[work.owner] = work.common | self._own
            return Done(work.function(*self._arguments(work)))
        except Exception as error:
            return Failed(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _arguments(self, work: Work) -> tuple[Any, ...]:
        if work.attempt is None:
            return work.arguments
        kind, own = work.attempt
        return kind(**self._common[work.owner], **own), *work.arguments

    def _send_answer(self, answer: Done | Failed) -> None:
        try:
            self._send(answer)
        except OSError:
            raise
        except Exception as error:  # it cannot be pickled
            self._send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))

    def _send(self, message: Any) -> None:
        with self._sending:
            send(self._connection, message)
