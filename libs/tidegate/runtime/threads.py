"""Work side by side: partitions of one task, and what a driver does beside its batches.

While one partition waits for Kafka or the disk, another computes; kernels run without the GIL, so lanes also share out
what a task computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from threading import Thread
from typing import TypeVar

LANES = 2
"""Partitions that a task works on at once: a third would mostly wait for the cores, and hold its input meanwhile."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Sequence[Item]) -> Iterator[Answer]:
    """The work's answer for each item, in order; LANES items are under way at once, a single one in this thread."""
    if len(items) < 2:
        return map(work, items)
    return _pool(os.getpid()).map(work, items)


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    """Threads that stay as long as their process, so that each keeps its connection; a fork has none of them."""
    return ThreadPoolExecutor(LANES, thread_name_prefix="lane")


def beside(work: Callable[[], Answer]) -> Future[Answer]:
    """The answer to come of work on a thread of its own, which no end of the process waits for."""
    answer: Future[Answer] = Future()
    Thread(target=_answer, args=(work, answer), daemon=True).start()
    return answer


def _answer(work: Callable[[], Answer], answer: Future[Answer]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:  # it is raised where the answer is asked for
        answer.set_exception(error)
