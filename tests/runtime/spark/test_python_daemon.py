"""How a Python worker of Spark ends when Spark closes its socket, as it does after a minute without work."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S
from tidegate.runtime.spark.session import _SETTINGS

MODULE = "tidegate.runtime.spark.python_daemon"
IDLE = f"""
import os, socket
from {MODULE} import _worker, worker
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"  # as Spark sets it
ours, sparks = socket.socketpair()
sparks.close()
print(SERVE(ours, True))
"""

pytestmark = pytest.mark.fast


def idle(worker: str) -> subprocess.CompletedProcess[str]:
    program = IDLE.replace("SERVE", worker)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_worker_whose_socket_was_closed_ends_without_a_stack_trace() -> None:
    ended = idle("worker")
    assert (ended.stdout, ended.stderr) == ("1\n", "")


def test_pyspark_s_own_worker_still_ends_with_one() -> None:
    """If this fails, PySpark was mended, and the module can go."""
    assert "BrokenPipeError" in idle("_worker").stderr


def test_spark_starts_this_daemon() -> None:
    assert _SETTINGS["spark.python.daemon.module"] == MODULE
