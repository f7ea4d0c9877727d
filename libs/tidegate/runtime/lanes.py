"""Partitions of one task side by side: while one waits for Kafka or the disk, another computes.

May import: the standard library. Kernels run without the GIL, so lanes also share out what a task computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

LANES = 2
"""Partitions that a task works on at once: a third one would mostly wait for the cores, and hold its input meanwhile."""

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
