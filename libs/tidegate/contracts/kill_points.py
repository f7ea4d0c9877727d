"""Kill points: places in the code where a test can kill or stop a process, or let it outlive its attempt.

`TIDEGATE_KILL_AT=[how:]name[:n][@file]` arms the kill point `name`. Its action runs when the point is reached for the
n-th time (default: the first). With a file, only the times while the file exists count, and the action runs in the one
process that removes the file. `how` selects the action:

kill     (default) SIGKILL to the whole session of the process: driver, JVM and Python workers, as when a
             machine loses power
stop     SIGSTOP to the whole session, which continues after a SIGCONT
outlive  SIGKILL to the other Python workers, so that the attempt fails; this one continues two seconds later

The variable is read once; without it, a kill point costs one comparison. Each process counts for itself.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

KillPoint = Literal[
    "after_claim",
    "after_lease",
    "during_configuration_change",
    "between_initialisations",
    "after_dirty_header",
    "after_half_of_output",
    "after_complete_header",
    "before_commit",
    "after_commit",
    "before_ends",
    "between_ends",
    "in_settling_before_end",
    "in_settling_after_end",
    "before_compaction_commit",
    "after_compaction_commit",
    "during_idle_advance",
    "before_rescale_commit",
    "after_rescale_commit",
]

STOPPING_S = 1.0
"""How long the sender of SIGSTOP sleeps: the thread that takes the signal may get a core later."""
OUTLIVED_S = 2.0
"""How long a task continues after its attempt failed; slightly more was observed in Spark."""
_ORDER = re.compile(r"(?:(?P<how>\w+):)?(?P<name>[a-z_]+)(?::(?P<count>\d+))?(?:@(?P<file>.+))?")


_watchers: list[Callable[[KillPoint], None]] = []


@contextmanager
def watched(watcher: Callable[[KillPoint], None]) -> Iterator[None]:
    """Call the watcher at every kill point that is reached inside the context.

    A simulation uses this to perform the actions by itself.
    """
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def armed(point: KillPoint) -> bool:
    """Return whether this kill point is the armed one and its file, if it has one, exists."""
    return point == _NAME and (_FILE is None or Path(_FILE).exists())


def reach(point: KillPoint) -> None:
    """Call the watchers, then run the action if this kill point is armed and reached for the n-th time."""
    for watcher in _watchers:
        watcher(point)
    if not armed(point):
        return
    _left[0] -= 1
    if _left[0] == 0 and _taken(_FILE):
        _HOW()


def _taken(file: str | None) -> bool:
    """Return True if the action is to run: where there is a file, in the one process that removes it."""
    if file is None:
        return True
    try:
        Path(file).unlink()
    except FileNotFoundError:
        return False
    return True


def _kill_session() -> None:
    _signal_session(signal.SIGKILL)


def _stop_session() -> None:
    _signal_session(signal.SIGSTOP)
    time.sleep(STOPPING_S)


def _signal_session(number: signal.Signals) -> None:
    mine, session = os.getpid(), os.getsid(0)
    _signal((other.pid for other in _processes() if other.session == session and other.pid != mine), number)
    os.kill(mine, number)


def _outlive() -> None:
    mine, parent = os.getpid(), os.getppid()
    _signal((other.pid for other in _processes() if other.parent == parent and other.pid != mine), signal.SIGKILL)
    time.sleep(OUTLIVED_S)


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int


def _processes() -> list[_Process]:
    found = (_process(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process for process in found if process is not None]


def _process(entry: Path) -> _Process | None:
    try:
        _state, parent, _group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None  # the process has ended in the meantime
    return _Process(int(entry.name), int(parent), int(session))


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


_HOWS: dict[str, Callable[[], None]] = {"kill": _kill_session, "stop": _stop_session, "outlive": _outlive}


def _read(order: str) -> tuple[Callable[[], None], str, int, str | None]:
    if not order:
        return _kill_session, "", 1, None
    found = _ORDER.fullmatch(order)
    if found is None or (found["how"] or "kill") not in _HOWS:
        raise ValueError(f"TIDEGATE_KILL_AT={order}: it is [kill|stop|outlive:]name[:n][@file]")
    return _HOWS[found["how"] or "kill"], found["name"], int(found["count"] or 1), found["file"]


_HOW, _NAME, _count, _FILE = _read(os.environ.get("TIDEGATE_KILL_AT", ""))
_left = [_count]
