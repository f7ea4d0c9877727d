"""Where a worker's process is: its machine, its executor, and the folder of its local states."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from tidegate.runtime.workers.messages import Site

STATE = "TIDEGATE_WORKER_STATE"
"""Environment variable of an executor: its own folder for local states, instead of `state` of the configuration."""
_EXECUTOR_ID = b"--executor-id"


def site() -> Site:
    """Return where this process, a Spark task, runs."""
    folder = own_state_folder()
    return Site(socket.gethostname(), _executor(os.getppid()), str(os.getppid() if folder is None else folder))


def own_state_folder() -> Path | None:
    """Return the folder that the environment gives to this executor, which may be relative to its working folder."""
    given = os.environ.get(STATE)
    return Path(given).resolve() if given else None


def _executor(process: int) -> str:
    """Return Spark's name of the executor that is an ancestor of the process; empty if there is none."""
    with suppress(OSError):
        while process > 1:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if _EXECUTOR_ID in words:
                return words[words.index(_EXECUTOR_ID) + 1].decode()
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return ""
