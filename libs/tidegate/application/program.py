"""The program that defines an application: whether a command loads it, and what Spark's workers may import of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)
"""Whether a command is loading a program. If so, `run()` has no effect, so that the command can do its own work."""


def let_workers_import(folder: Path) -> None:
    """Let this process and Spark's Python workers, which start later, import the modules of the folder."""
    place = str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    before = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if place not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([place, *before])


@contextmanager
def loading() -> Iterator[None]:
    """Set `is_loading` within the block."""
    token = is_loading.set(True)
    try:
        yield
    finally:
        is_loading.reset(token)
