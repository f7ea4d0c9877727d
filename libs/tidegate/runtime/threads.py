"""Threads: for the partitions of one task, and for a driver's background work.

While one partition waits for Kafka or the disk, another one computes. Kernels run without the GIL, so that the threads
of a task also compute in parallel.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, count
from threading import Condition, Thread
from typing import Protocol, TypeVar

from tidegate.contracts.clock import SYSTEM_CLOCK

lines = logging.getLogger("tidegate")

THREADS = 2
"""Partitions that a task runs at once: a third one would mostly wait for a core while its input takes memory."""

WAITING_THREADS = 8
"""Requests of a process that wait for Kafka at once: a broker answers those of one connection one after the other."""

REPEATING_THREADS = 4
"""Threads for all repeated work of a process, such as the leases of its drivers: if one waits for a slow store, the
others continue."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Parallel(Protocol):
    """Runs some work on each item, some at once, and returns the results in order."""

    def __call__(self, work: Callable[[Item], Answer], items: Sequence[Item], /) -> Iterator[Answer]: ...


def map_parallel(work: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """Return an iterator over the work's results, in order of the items; THREADS items run at once.

    A single item runs in the calling thread.
    """
    return _map(work, items, THREADS, "partition")


def map_waiting(work: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """Return what `map_parallel` returns, for work that mostly waits for Kafka: WAITING_THREADS items run at once.

    The first item runs in the calling thread, beside the others.
    """
    others = _map(work, items[1:], WAITING_THREADS, "waiting", least=1)
    return chain(map(work, items[:1]), others)


def _map(
    work: Callable[[Item], Answer], items: Sequence[Item], threads: int, name: str, *, least: int = 2
) -> Iterator[Answer]:
    if len(items) < least:
        return map(work, items)
    return _pool(os.getpid(), threads, name).map(work, items)


@lru_cache(maxsize=2)
def _pool(_process: int, threads: int, name: str) -> ThreadPoolExecutor:
    """Return a process's pool of threads, which live as long as it, so that each keeps its connection to Kafka.

    A forked process gets pools of its own, since threads do not survive a fork.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


def in_background(work: Callable[[], Answer], name: str) -> Future[Answer]:
    """Start the work on a daemon thread of that name, for which the process does not wait; return its future."""
    answer: Future[Answer] = Future()
    Thread(target=_answer, args=(work, answer), name=name, daemon=True).start()
    return answer


def _answer(work: Callable[[], Answer], answer: Future[Answer]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:  # raised again where the result is asked for
        answer.set_exception(error)


class _Repeated:
    """Some work that is due again and again; `ended` once it is no longer wanted."""

    def __init__(self, work: Callable[[], None], pause_s: float) -> None:
        self.work, self.pause_s, self.ended = work, pause_s, False


class _Repeater:
    """Runs all repeated work of a process on a few threads: as many as there is work for, at most REPEATING_THREADS."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._due: list[tuple[float, int, _Repeated]] = []
        self._numbers = count()
        self._wanted = self._threads = 0

    def add(self, repeated: _Repeated, name: str) -> None:
        """Call the work from now on; the first time after its pause."""
        with self._changed:
            self._wanted += 1
            self._put(repeated)
            if self._threads < min(self._wanted, REPEATING_THREADS):
                self._threads += 1
                Thread(target=self._run, name=name, daemon=True).start()
            self._changed.notify()

    def end(self, repeated: _Repeated) -> None:
        """Call the work no more; a call that is under way is not waited for."""
        with self._changed:
            repeated.ended = True
            self._wanted -= 1
            self._due = [each for each in self._due if each[2] is not repeated]
            heapify(self._due)
            self._changed.notify_all()

    def _put(self, repeated: _Repeated) -> None:
        heappush(self._due, (SYSTEM_CLOCK.monotonic() + repeated.pause_s, next(self._numbers), repeated))

    def _run(self) -> None:
        while (repeated := self._next()) is not None:
            try:
                repeated.work()
            except Exception:  # a defect of this work, for which other work must not end
                lines.exception("repeated work has failed")
            with self._changed:
                if not repeated.ended:
                    self._put(repeated)
                    self._changed.notify()

    def _next(self) -> _Repeated | None:
        """Wait until some work is due, and return it; None if this thread is not needed any more."""
        with self._changed:
            while self._threads <= self._wanted:
                wait_s = self._due[0][0] - SYSTEM_CLOCK.monotonic() if self._due else None
                if wait_s is not None and wait_s <= 0:
                    return heappop(self._due)[2]
                self._changed.wait(wait_s)
            self._threads -= 1
            return None


@lru_cache(maxsize=1)
def _repeater(_process: int) -> _Repeater:
    """Return a process's repeater; a forked process gets its own, since threads do not survive a fork."""
    return _Repeater()


@contextmanager
def repeating(work: Callable[[], None], pause_s: float, name: str) -> Iterator[None]:
    """Call the work every `pause_s` seconds while the block runs, on threads that all such work of the process shares.

    A call that is under way at the end of the block is not waited for. The work must not raise. While other work takes
    long, as when the lake does not answer, the call may come late.
    """
    repeated, repeater = _Repeated(work, pause_s), _repeater(os.getpid())
    repeater.add(repeated, name)
    try:
        yield
    finally:
        repeater.end(repeated)
