"""The process that forks Spark's Python workers: PySpark's own, except that an idle worker ends without a stack trace.

Spark ends workers that were idle for a minute: it closes the socket of each, and asks the daemon to kill it. A worker
that notices the closed socket first writes an error into it, which fails, and PySpark prints that with a stack trace.
Nobody reads the answer of such a worker, so that it ends quietly. Spark starts this module as its
`spark.python.daemon.module`.
"""

from __future__ import annotations

from socket import socket
from typing import Any

from pyspark import daemon

_worker: Any = daemon.worker


def worker(sock: socket, authenticated: bool) -> int:
    """Serve one task, as PySpark does; return 1 if Spark has closed the socket, so that the worker ends."""
    try:
        code: int = _worker(sock, authenticated)
    except BrokenPipeError:
        return 1
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
