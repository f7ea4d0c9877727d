"""Places where a process can be made to die, so that tests meet every crash. May import: the standard library.

`TIDEGATE_KILL_AT=name` or `name:3` (the third time the place is reached) ends the whole session of the process with
SIGKILL: driver, JVM and Python workers, as when a machine loses power. The variable is read once; without it a place
costs one comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

KillPoint = Literal[
    "after_claim",
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

_NAME, _, _COUNT = os.environ.get("TIDEGATE_KILL_AT", "").partition(":")
_left = [int(_COUNT or 1)]


def armed(point: KillPoint) -> bool:
    """True when the place is the one where the session has to die."""
    return point == _NAME


def reach(point: KillPoint) -> None:
    """Nothing has happened, unless this is the place and the time at which the session has to die."""
    if not armed(point):
        return
    _left[0] -= 1
    if _left[0] == 0:
        _kill_session()


def _kill_session() -> None:
    mine, session = os.getpid(), os.getsid(0)
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != mine and _session_of(int(process.name)) == session:
            os.kill(int(process.name), signal.SIGKILL)
    os.kill(mine, signal.SIGKILL)


def _session_of(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:
        return None
