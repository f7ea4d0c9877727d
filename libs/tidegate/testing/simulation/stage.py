"""Processes that take turns: one runs, all others stand still.

Each is a thread, but only the one that holds the turn runs, until it parks: so a run is the same every time, and a
process can be stopped anywhere, go on later, or never.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The process is gone. No handler of errors may see it, as none sees SIGKILL."""


class Actor:
    """A process on the stage. `machine`: where it runs; `budget`: steps until it parks by itself (-1: no end)."""

    def __init__(self, name: str, machine: Any, work: Callable[[], None]) -> None:
        self.name, self.machine = name, machine
        self.paused, self.budget = 0, -1
        self.ended, self.error = False, None
        self._work = work
        self._doomed = False
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)

    error: BaseException | None

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._check()
            self._work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self._back.release()

    def _take_turn(self) -> None:
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()

    def _give_turn(self) -> None:
        self._back.release()
        self._go.acquire()
        self._check()

    def _check(self) -> None:
        if self._doomed:
            raise Crash(self.name)


class Stage:
    """Who is there, and whose turn it is. `current` is None while the director itself has the turn."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.current: Actor | None = None

    def enter(self, name: str, machine: Any, work: Callable[[], None]) -> Actor:
        """A new process stands on the stage; it has done nothing yet."""
        actor = Actor(name, machine, work)
        self.actors.append(actor)
        return actor

    def resume(self, actor: Actor) -> None:
        """The actor has gone on until it parked or ended."""
        before, self.current = self.current, actor
        actor._take_turn()
        self.current = before
        if actor.ended:
            self.actors.remove(actor)

    def park(self) -> None:
        """Others have had their turn. Raises Crash if the process was killed meanwhile."""
        if self.current is not None:
            self.current._give_turn()

    def kill(self, actor: Actor) -> None:
        """The actor is gone; nothing that it would have done next is done."""
        actor._doomed = True
        while not actor.ended:
            self.resume(actor)

    def dying(self) -> bool:
        """True while the current actor unwinds."""
        return self.current is not None and self.current._doomed

    def is_turn_of_this_thread(self) -> bool:
        """True in the thread of the current actor."""
        return self.current is not None and self.current._thread.ident == threading.get_ident()
