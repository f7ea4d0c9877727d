"""Spark that starts beside the first batches of a service."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

from tidegate.runtime.spark.session import Spark
from tidegate.runtime.threads import beside


class StartingSpark:
    """Spark on its way, whose executors will be on this machine: until they are there, tasks run in this process.

    `failed` is called if Spark does not start.
    """

    def __init__(self, start: Callable[[], Spark], failed: Callable[[], None]) -> None:
        self._start, self._failed = start, failed
        self._beginning = Lock()
        self._coming: Future[Spark] | None = None

    def begin(self) -> Future[Spark]:
        """Start it, unless that has begun; return what is to come."""
        with self._beginning:
            if self._coming is None:
                self._coming = beside(self._started)
            return self._coming

    @property
    def sparkContext(self) -> Any:
        """The context, waited for. Raises UserError or EngineError when Spark does not start."""
        return self.begin().result().sparkContext

    def stop(self) -> None:
        """Stop it, if it has begun to start. Raises as `sparkContext`."""
        if self._coming is not None:
            self._coming.result().stop()

    def _started(self) -> Spark:
        try:
            return self._start()
        except BaseException:
            self._failed()
            raise
