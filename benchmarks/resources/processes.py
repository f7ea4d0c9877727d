"""What processes use, read from /proc: CPU time, memory, and which processes a process has started."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """Return the process and all that it has started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of the process so far, in user and system mode; 0 if it has ended."""
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / _TICKS_PER_S if stat else 0.0


def memory_bytes(pid: int) -> int:
    """Return the memory of the process; what it shares with others counts in equal parts. 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("Pss:"))


def idle_s() -> float:
    """Return the seconds so far in which a core was idle or waited for a disk."""
    idle, waiting = Path("/proc/stat").read_text().split()[4:6]
    return (int(idle) + int(waiting)) / _TICKS_PER_S


def name(pid: int) -> str:
    """Return the short name of the process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
