"""The driver's end of the connection to a worker's process: items wait in turns, and one at a time is under way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from threading import Lock, Thread
from typing import Any

from tidegate.contracts.errors import EngineError
from tidegate.runtime.task.messages import Attempt
from tidegate.runtime.workers.connection import hang_up
from tidegate.runtime.workers.messages import Alive, Failed, Hello, Work, divided, receive, send
from tidegate.runtime.workers.turns import Turns


class WorkerLost(EngineError):
    """A worker's process has ended, or gives no sign of life; its work is lost."""


@dataclass(frozen=True, eq=False)
class Item:
    """A call for a worker, `function(attempt, *arguments)` or, without an attempt, `function(*arguments)`."""

    owner: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    attempt: Attempt | None = None
    answer: Future[Any] = field(default_factory=Future)


class Lane:
    """One process of a worker. Items may be put before it has connected; they wait.

    `silent` counts the keeper's looks since the last sign of life, and `unused` those without any work.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self.hello: Hello | None = None
        self.silent = self.unused = 0
        self._ended = ended
        self._lock, self._sending = Lock(), Lock()
        self._turns: Turns[Item] = Turns()
        self._current: Item | None = None
        self._connection: Connection | None = None
        self._common: dict[str, dict[str, Any]] = {}
        self._lost: WorkerLost | None = None

    @property
    def load(self) -> int:
        """Return how many items wait or are under way."""
        with self._lock:
            return len(self._turns) + (self._current is not None)

    def connected(self, connection: Connection, hello: Hello) -> None:
        """Send the items to this process from now on."""
        with self._lock:
            if self._lost is not None:
                hang_up(connection)
                connection.close()
                return
            self._connection, self.hello, self.silent = connection, hello, 0
        Thread(target=self._read, args=(connection,), name=f"worker {hello.seat}, {hello.lane}", daemon=True).start()
        self._send_next()

    def put(self, item: Item) -> None:
        """Let the item wait for its turn. Its answer has WorkerLost if the process is lost before."""
        with self._lock:
            lost = self._lost
            if lost is None:
                self._turns.add(item.owner, item)
        if lost is not None:
            item.answer.set_exception(_copy(lost))
        else:
            self._send_next()

    def look(self) -> None:
        """Count a look of the keeper at a connected process."""
        with self._lock:
            if self._connection is not None:
                self.silent += 1
            self.unused = 0 if self._current is not None or len(self._turns) else self.unused + 1

    def withdraw(self, owner: str) -> bool:
        """Drop what waits of that owner, and return whether an item of it is under way."""
        with self._lock:
            dropped = self._turns.withdraw(lambda item: item.owner == owner)
            current = self._current is not None and self._current.owner == owner
        _fail(dropped, EngineError("the work was cancelled"))
        return current

    def lose(self, why: str) -> None:
        """Give the process up, if it is not lost yet: hang up, and fail its work with WorkerLost."""
        with self._lock:
            if self._lost is not None:
                return
            hello, connection = self.hello, self._connection
            place = "before it connected" if hello is None else f"{hello.site.machine}, process {hello.pid}"
            remedy = "do nothing: a new worker takes its place, and the driver tries again"
            lost = self._lost = WorkerLost(why, value=place, remedy=remedy)
            failed = [] if self._current is None else [self._current]
            failed += self._turns.withdraw()
            self._current = None
        if connection is not None:
            hang_up(connection)
        self._ended()
        _fail(failed, lost)

    def _read(self, connection: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                message = receive(connection)
                self.silent = 0
                if not isinstance(message, Alive):
                    self._answered(message)
        self.lose("a worker was lost")
        with self._sending:
            connection.close()

    def _answered(self, message: Any) -> None:
        with self._lock:
            item, self._current = self._current, None
        self._send_next()
        if item is not None:
            _settle(item, message)

    def _send_next(self) -> None:
        """Send the next item if the process has nothing to do. An item that cannot be sent fails alone."""
        while True:
            with self._lock:
                if self._connection is None or self._current is not None or self._lost is not None:
                    return
                item = self._current = self._turns.take()
                connection = self._connection
            if item is None:
                return
            try:
                with self._sending:
                    send(connection, self._work(item))
            except OSError:
                return  # the reader notices it too
            except Exception as error:
                with self._lock:
                    self._current = None
                item.answer.set_exception(error)
            else:
                return

    def _work(self, item: Item) -> Work:
        if item.attempt is None:
            return Work(item.owner, item.function, item.arguments, None, None)
        common, own = divided(item.attempt)
        known = self._common.get(item.owner) == common
        self._common[item.owner] = common
        return Work(item.owner, item.function, item.arguments, (type(item.attempt), own), None if known else common)


def _settle(item: Item, message: Any) -> None:
    if isinstance(message, Failed):
        error = EngineError("the task of a worker failed", value=message.error, remedy="see the trace")
        error.add_note(message.trace)
        item.answer.set_exception(error)
    else:
        item.answer.set_result(message.value)


def _fail(items: list[Item], error: EngineError) -> None:
    for item in items:
        item.answer.set_exception(_copy(error))


def _copy(error: EngineError) -> EngineError:
    """Return an error of its own for each item, as those who raise it add notes and tracebacks."""
    return type(error)(error.problem, value=error.value, remedy=error.remedy)
