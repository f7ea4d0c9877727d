"""Simulated processes that take turns: one runs at a time.

Each is a thread, but only the one that has the turn runs, until it parks. So a run is deterministic, and a process can
be stopped at any place and continue later or never.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The death of a process. A BaseException, so that error handlers do not catch it, as they cannot catch SIGKILL."""


class Actor:
    """A simulated process. `machine`: where it runs; `budget`: steps until it parks by itself (-1: unlimited)."""

    def __init__(self, name: str, machine: Any, work: Callable[[], object]) -> None:
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
    """All processes, and which one has the turn. `current` is None while the director has it."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.current: Actor | None = None

    def enter(self, name: str, machine: Any, work: Callable[[], object]) -> Actor:
        """Add a process, which has not started yet."""
        actor = Actor(name, machine, work)
        self.actors.append(actor)
        return actor

    def resume(self, actor: Actor) -> None:
        """Let the actor run until it parks or ends."""
        before, self.current = self.current, actor
        actor._take_turn()
        self.current = before
        if actor.ended:
            self.actors.remove(actor)

    def park(self) -> None:
        """Let others run. Raise Crash if the process was killed meanwhile."""
        if self.current is not None:
            self.current._give_turn()

    def kill(self, actor: Actor) -> None:
        """Kill the actor: Crash is raised where it stands, and it does nothing more."""
        actor._doomed = True
        while not actor.ended:
            self.resume(actor)

    def dying(self) -> bool:
        """Return True while the current actor unwinds after a Crash."""
        return self.current is not None and self.current._doomed

    def is_turn_of_this_thread(self) -> bool:
        """Return True in the thread of the current actor."""
        return self.current is not None and self.current._thread.ident == threading.get_ident()
