"""Answers of slow sources, such as a broker that is away: pages show the latest one and hardly wait for the next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Lock, Thread
from typing import Generic, NamedTuple, TypeVar

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")

FRESH_S, RECENT_S, KEPT_S = 5.0, 15.0, 60.0
"""Age up to which an answer is used without asking again, up to which the next one is not waited for, and up to which
it is shown while the next one is late. A broker that is away takes 5 s to be found so."""

PATIENCE_S = 0.2
"""How long a page waits for an answer in place of one that is not recent."""


class _Answer(NamedTuple, Generic[T]):
    value: T
    at: float


class Latest(Generic[T]):
    """The latest answer of a function, which is called in the background while pages want its answer."""

    def __init__(self, ask: Callable[[], T], missing: T, clock: Clock = SYSTEM_CLOCK) -> None:
        """`missing` stands for the answer as long as there is none that is new enough."""
        self._ask, self._missing, self._clock = ask, missing, clock
        self._answer: _Answer[T] | None = None
        self._lock = Lock()
        self._asking: Future[None] | None = None

    def get(self) -> T:
        """Return the answer, which is at most KEPT_S old; the missing one if there is none within PATIENCE_S.

        Raise what the function has raised.
        """
        with self._lock:
            if (self._asking is None or self._asking.done()) and self._age() > FRESH_S:
                self._asking = Future()
                # a daemon: the end of the process does not wait for a source that does not answer
                Thread(target=self._refresh, args=(self._asking,), name="console", daemon=True).start()
            asking = self._asking
        if asking is not None and asking in wait([asking], 0 if self._age() <= RECENT_S else PATIENCE_S).done:
            asking.result()
        return self._missing if self._answer is None or self._age() > KEPT_S else self._answer.value

    def _age(self) -> float:
        return float("inf") if self._answer is None else self._clock.monotonic() - self._answer.at

    def _refresh(self, asking: Future[None]) -> None:
        try:
            self._answer = _Answer(self._ask(), self._clock.monotonic())
        except Exception as error:
            asking.set_exception(error)
        else:
            asking.set_result(None)
