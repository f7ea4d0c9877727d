"""Places where a process can be made to die, to stop or to outlive its attempt.

`TIDEGATE_KILL_AT=[how:]name[:n][@file]` names a place, at which the n-th time (the first, unless told) something
happens. With a file, times count while the file exists, and it happens to the process that takes the file away. What
happens is told by `how`:

kill     (the default) the whole session of the process is killed: driver, JVM and Python workers, as when a
             machine loses power
    stop     the whole session is stopped by SIGSTOP, and goes on from there after a SIGCONT
    outlive  the other Python workers are killed, so that the attempt fails; this one goes on two seconds later

The variable is read once; without it a place costs one comparison. Each process counts for itself.
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
    "between_ends",
    "in_settling_before_end",
    "in_settling_after_end",
    "before_compaction_commit",
    "after_compaction_commit",
    "during_idle_advance",
]

STOPPING_S = 1.0
"""The thread that takes a process's SIGSTOP may be given a core later than the one that sent it goes on."""
OUTLIVED_S = 2.0
"""How long a task goes on after its attempt failed; a little more was seen in Spark."""
_ORDER = re.compile(r"(?:(?P<how>\w+):)?(?P<name>[a-z_]+)(?::(?P<count>\d+))?(?:@(?P<file>.+))?")


_watchers: list[Callable[[KillPoint], None]] = []


@contextmanager
def watched(watcher: Callable[[KillPoint], None]) -> Iterator[None]:
    """Inside, the watcher is called at every place that is reached: a simulation's way to do all of this by itself."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def armed(point: KillPoint) -> bool:
    """True when the place is the one where something has to happen, once its file exists."""
    return point == _NAME and (_FILE is None or Path(_FILE).exists())


def reach(point: KillPoint) -> None:
    """Nothing has happened, unless this is the place and the time."""
    for watcher in _watchers:
        watcher(point)
    if not armed(point):
        return
    _left[0] -= 1
    if _left[0] == 0 and _taken(_FILE):
        _HOW()


def _taken(file: str | None) -> bool:
    """True for one process alone, where there is a file."""
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
        return None  # it has ended in the meantime
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
