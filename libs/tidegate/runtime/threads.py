"""Threads: for the partitions of one task, and for a driver's background work.

While one partition waits for Kafka or the disk, another one computes. Kernels run without the GIL, so that the threads
of a task also compute in parallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Event, Thread
from typing import TypeVar

THREADS = 2
"""Partitions that a task runs at once: a third one would mostly wait for a core while its input takes memory."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def map_parallel(work: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """Return an iterator over the work's results, in order of the items; THREADS items run at once.

    A single item runs in the calling thread.
    """
    if len(items) < 2:
        return map(work, items)
    return _pool(os.getpid()).map(work, items)


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return a process's pool of threads, which live as long as it, so that each keeps its connection to Kafka.

    A forked process gets a pool of its own, since threads do not survive a fork.
    """
    return ThreadPoolExecutor(THREADS, thread_name_prefix="partition")


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


@contextmanager
def repeating(work: Callable[[], None], pause_s: float, name: str) -> Iterator[None]:
    """Call the work every `pause_s` seconds while the block runs, on a daemon thread of that name.

    A call that is under way at the end of the block is not waited for. The work must not raise.
    """
    ended = Event()

    def repeat() -> None:
        while not ended.wait(pause_s):
            work()

    Thread(target=repeat, name=name, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
