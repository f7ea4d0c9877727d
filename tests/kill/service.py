"""`tidegate run` in a separate session: started, watched, stopped, continued and killed as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 300.0
FENCED = 1
"""The exit code of a driver that was taken over: it has failed, as for any other error but wrong use."""
QUICK_START = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Most of a service's short life here is the start of its JVM."""
_NUMBERS = count(1)


def _standby(start: Start) -> tuple[str, ...]:
    return str(Path(__file__).with_name("standby.py")), str(start.file), "cold" if start.cold else "warm"


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a service is started."""

    file: Path
    kill_at: str = ""
    until_caught_up: bool = False
    operator: str = ""
    cold: bool = False
    standby: bool = False


def run_command(*arguments: str, folder: Path, kill_at: str = "") -> str:
    """Run a command in the folder to its end; return what it prints. With `kill_at` it dies there."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *arguments],
        env={**os.environ, "TIDEGATE_KILL_AT": kill_at},
        start_new_session=True,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
    )
    assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stdout + done.stderr
    return done.stdout


class Service:
    """A service that stands by: it starts Spark, unless it is `cold`, and nothing else before `go`."""

    def __init__(self, start: Start) -> None:
        self.file, self.kill_at = start.file, start.kill_at
        self._log = start.file.with_suffix(f".{next(_NUMBERS):03}.log")
        command = ["run", str(start.file), "--verbose", *["--until-caught-up"] * start.until_caught_up]
        command += ["--operator", start.operator] if start.operator else []
        command += ["--standby"] * start.standby
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, *_standby(start), *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={**os.environ, **QUICK_START, "TIDEGATE_KILL_AT": start.kill_at},
                start_new_session=True,
                cwd=start.file.parent,
            )

    @property
    def process(self) -> int:
        """The id of its first process."""
        return self._process.pid

    @property
    def lines(self) -> str:
        """What it has said."""
        return self._log.read_text()

    def go(self) -> Service:
        """It is running the command, once Spark is there; gives itself."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.close()
        return self

    def wait_for(self, text: str, times: int = 1) -> None:
        """It has said that."""
        self.wait_until(lambda: self.lines.count(text) >= times, f"it did not say: {text}")

    def wait_ready(self) -> None:
        """It has claimed, settled, and says so."""
        self.wait_for("ready")

    def wait_death(self) -> None:
        """It has died at its kill point."""
        self.wait_until(lambda: self._process.poll() is not None, "it did not die at its kill point", may_end=True)
        assert self._process.returncode == -signal.SIGKILL, self.lines
        self.kill()

    def wait_stopped(self) -> None:
        """It has stopped, all of it, at its kill point."""
        self.wait_until(self._stopped, "it did not stop at its kill point")

    def wait_end(self, code: int = 0) -> None:
        """It has ended by itself, with that exit code; what was stopped is continued."""

        def ended() -> bool:
            _signal(_members(self._process.pid), signal.SIGCONT)  # two workers may have stopped each other in turn
            return self._process.poll() is not None

        self.wait_until(ended, "it did not end", may_end=True)
        assert self._process.returncode == code, f"exit code {self._process.returncode}:\n{self.lines}"
        self.kill()

    def wait_until(
        self, true: Callable[[], bool], otherwise: str, *, may_end: bool = False, pause_s: float = 0.02
    ) -> None:
        """It is true; AssertionError, with all lines, after a long time, or at once when the service has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while not true():
            gone = not may_end and self._process.poll() is not None
            if gone or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.file.name} {self.kill_at}: {otherwise}:\n{self.lines}")
            time.sleep(pause_s)

    def drain(self) -> None:
        """It has ended in good order: what was committed is published."""
        os.kill(self._process.pid, signal.SIGTERM)
        self.wait_end()

    def kill(self) -> None:
        """All of its processes are killed: driver, JVM, Python workers."""
        deadline = time.monotonic() + 20
        while alive := _members(self._process.pid):
            _signal(alive, signal.SIGKILL)
            self._process.poll()
            assert time.monotonic() < deadline, f"still alive: {alive}"
            time.sleep(0.02)
        self._process.wait()

    def _stopped(self) -> bool:
        members = _members(self._process.pid)
        return bool(members) and all(member.state == "T" for member in members)


@contextmanager
def in_turn(starts: Sequence[Start]) -> Iterator[Iterator[Service]]:
    """The services one after the other, each standing by; while one runs, the next starts Spark. None is left."""
    begun: list[Service] = []

    def begin(start: Start) -> Service:
        begun.append(Service(start))
        return begun[-1]

    def services() -> Iterator[Service]:
        following = begin(starts[0])
        for start in starts[1:]:
            present, following = following, begin(start)
            yield present
        yield following

    try:
        yield services()
    finally:
        for service in begun:
            service.kill()


class _Member(NamedTuple):
    pid: int
    state: str


def _members(session: int) -> list[_Member]:
    """The processes of the session that have not ended."""
    found = (_member(entry, session) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [member for member in found if member is not None]


def _member(entry: Path, session: int) -> _Member | None:
    try:
        state, _parent, _group, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return _Member(int(entry.name), state) if int(of_session) == session and state not in "ZX" else None


def _signal(members: Sequence[_Member], number: signal.Signals) -> None:
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member.pid, number)
