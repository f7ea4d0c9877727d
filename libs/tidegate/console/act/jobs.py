"""Commands that the console runs, one at a time, and what they have printed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from threading import Lock, Thread

from tidegate.console.act.actions import as_typed
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import UserError

KEPT = 20
"""How many jobs are remembered."""

MOST_OUTPUT = 65_536
"""Most characters of a command's output that are kept: the last ones."""


@dataclass
class Job:
    """A command that runs or has ended. `code`: its exit code; None while it runs."""

    number: int
    command: str
    began_ms: int
    output: str = ""
    code: int | None = None


class Jobs:
    """The commands that were confirmed, newest last."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._started, self._lock = 0, Lock()

    @property
    def newest_first(self) -> list[Job]:
        """Return the jobs that are remembered."""
        return list(self._jobs.values())[::-1]

    def find(self, number: int) -> Job:
        """Return the job of the number. Raise UserError if it is not remembered."""
        if number not in self._jobs:
            remedy = "the console remembers its last actions until it is stopped"
            raise UserError("there is no such action", value=number, remedy=remedy)
        return self._jobs[number]

    def start(self, arguments: list[str]) -> Job:
        """Start `tidegate` with the arguments, without a shell. Raise UserError while another command runs."""
        with self._lock:
            running = next((job for job in self._jobs.values() if job.code is None), None)
            if running is not None:
                raise UserError("another action runs", value=running.command, remedy="wait until it has ended")
            self._started += 1
            job = self._jobs[self._started] = Job(self._started, as_typed(arguments), SYSTEM_CLOCK.now_ms())
            for oldest in list(self._jobs)[:-KEPT]:
                del self._jobs[oldest]
        Thread(target=_run, args=(job, arguments), name=f"action {job.number}", daemon=True).start()
        return job


def _run(job: Job, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tidegate.cli.main", *arguments]
    none, pipe, same = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    try:
        with subprocess.Popen(command, stdin=none, stdout=pipe, stderr=same, text=True, errors="replace") as process:
            assert process.stdout is not None, "its output is a pipe"
            for line in process.stdout:
                job.output = (job.output + line)[-MOST_OUTPUT:]
        job.code = process.returncode
    except OSError as error:
        job.output, job.code = str(error), 1
