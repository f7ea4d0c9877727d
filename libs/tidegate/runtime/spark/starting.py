"""Spark that starts in the background while a service already runs its first batches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

from tidegate.runtime.spark.session import Spark
from tidegate.runtime.threads import in_background


class StartingSpark:
    """Spark that starts in the background, with executors on this machine. Until then tasks run in this process.

    `failed` is called if Spark does not start.
    """

    def __init__(self, start: Callable[[], Spark], failed: Callable[[], None]) -> None:
        self._start, self._failed = start, failed
        self._lock = Lock()
        self._future: Future[Spark] | None = None

    def start(self) -> Future[Spark]:
        """Begin to start Spark, if that has not begun; return its future."""
        with self._lock:
            if self._future is None:
                self._future = in_background(self._started, "start of Spark")
            return self._future

    @property
    def sparkContext(self) -> Any:
        """Wait for Spark and return its context. Raise UserError or EngineError if Spark does not start."""
        return self.start().result().sparkContext

    def stop(self) -> None:
        """Wait for Spark and stop it, if it has begun to start. Raise as `sparkContext` does."""
        if self._future is not None:
            self._future.result().stop()

    def _started(self) -> Spark:
        try:
            return self._start()
        except BaseException:
            self._failed()
            raise
