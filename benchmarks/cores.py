"""How busy one operator keeps two cores: CPU time over wall time, from ready to everything published, 4 partitions.

`busy_cores` counts the service (driver, its JVM, Python workers) and the broker, which works for it on the same two
cores. `service_cores` leaves out the broker; its maximum depends on what the broker needs. `idle_cores` was used by no
process. On an otherwise idle machine `busy_cores` and `idle_cores` add up to 2.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.load import RECORDS, load
from benchmarks.suppression import INPUT, run_service
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install.paths import jars
from tidegate.runtime.spark.session import start_session

RUNS = 3
_SERVICE = ("driver", "jvm", "workers")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure(say: Callable[[str], Any] = print) -> dict[str, float]:
    """Return the cores in use: medians of 3 runs after one warm-up run."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        say(f"loading {RECORDS:,} records")
        load(broker.bootstrap, INPUT)
        spark = start_session("bench", "local[2]")
        try:
            runs = [_run(spark, broker, Path(folder), say) for _ in range(1 + RUNS)][1:]
        finally:
            spark.stop()
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _run(spark: Any, broker: Broker, folder: Path, say: Callable[[str], Any]) -> dict[str, float]:
    """Run the service and return the CPU seconds of each part per second of the run."""
    used: list[dict[str, float]] = []
    seconds = run_service(spark, broker.bootstrap, folder, watch=lambda: used.append(_cpu_s(broker.pid)))
    cores = {part: (used[-1][part] - used[0][part]) / seconds for part in used[0]}
    say(f"{seconds:.1f} s: " + ", ".join(f"{part} {share:.2f}" for part, share in cores.items()))
    service = sum(cores[part] for part in _SERVICE)
    parts = {f"{part}_cores": share for part, share in cores.items()}
    return {"busy_cores": service + cores["broker"], "service_cores": service, **parts}


def _cpu_s(broker: int) -> dict[str, float]:
    """Return the CPU seconds so far of driver, JVM, Python workers and broker, and the idle seconds."""
    children = _children()
    parts = {"driver": [os.getpid()], "jvm": [], "workers": [], "broker": [broker]}
    below = [pid for pid in children.get(os.getpid(), []) if pid != broker]
    while below:
        for pid in below:
            parts["jvm" if _name(pid) == "java" else "workers"].append(pid)
        below = [child for pid in below for child in children.get(pid, [])]
    return {**{part: sum(_own_s(pid) for pid in pids) for part, pids in parts.items()}, "idle": _idle_s()}


def _idle_s() -> float:
    """Return the seconds so far in which a core was idle or waited for a disk."""
    idle, waiting = Path("/proc/stat").read_text().split()[4:6]
    return (int(idle) + int(waiting)) / _TICKS_PER_S


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    return children


def _own_s(pid: int) -> float:
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / _TICKS_PER_S if stat else 0.0


def _name(pid: int) -> str:
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
