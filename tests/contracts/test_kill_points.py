"""The places where tests make processes die or stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.patience import PATIENCE_S, wait_for
from tidegate.contracts import kill_points
from tidegate.contracts.kill_points import KillPoint

pytestmark = pytest.mark.fast

CODE = """
import subprocess
from tidegate.contracts.kill_points import reach
other = subprocess.Popen(["sleep", "60"])
print(other.pid, flush=True)
for time in range(3):
    reach("before_commit")
    reach("after_commit")
    print(time, flush=True)
other.kill()
"""


def child(order: str) -> subprocess.Popen[str]:
    """A process in a session of its own that comes to two places three times, with another process beside it."""
    environment = {**os.environ, "TIDEGATE_KILL_AT": order}
    return subprocess.Popen(
        [sys.executable, "-c", CODE], stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    """The times that it has counted until its end."""
    return process.communicate(timeout=PATIENCE_S)[0].split()[1:]


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process; Z when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def come_to(pid: int, letter: str) -> None:
    """Wait until a process is in a state: a signal to a group reaches its members one after the other."""
    wait_for(lambda: state_of(pid) == letter, f"the process is not in {letter}")


def test_kill_points_do_nothing_without_an_order():
    process = child("")
    assert said(process) == ["0", "1", "2"]
    assert process.returncode == 0


def test_the_service_is_killed_at_the_second_time():
    process = child("after_commit:2")
    beside = int(process.stdout.readline())
    assert process.stdout.read().split() == ["0"]
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    come_to(beside, "Z")


@pytest.mark.process
def test_a_stopped_session_continues_at_the_same_offset():
    process = child("stop:before_commit")
    beside = int(process.stdout.readline())
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    come_to(beside, "T")
    os.killpg(process.pid, signal.SIGCONT)
    assert process.stdout.read().split() == ["0", "1", "2"]
    assert process.wait(PATIENCE_S) == 0


def test_a_kill_order_with_a_file_waits_for_the_file_and_removes_it(tmp_path):
    armed = tmp_path / "armed"
    assert said(child(f"after_commit@{armed}")) == ["0", "1", "2"]
    armed.touch()
    process = child(f"after_commit@{armed}")
    assert said(process) == []
    assert process.returncode == -signal.SIGKILL
    assert not armed.exists()


def test_an_unknown_kill_order_is_refused():
    process = child("explode:after_commit")
    assert process.wait(PATIENCE_S) == 1


def test_every_kill_point_is_in_the_code():
    runtime = Path(kill_points.__file__).parents[1] / "runtime"
    code = "".join(path.read_text() for path in runtime.rglob("*.py"))
    assert [point for point in get_args(KillPoint) if f'reach("{point}")' not in code] == []
