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
from benchmarks.resources import processes
from benchmarks.suppression import INPUT, run_service
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install.paths import jars
from tidegate.runtime.spark.session import start_session

RUNS = 3
_SERVICE = ("driver", "jvm", "workers")


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
    driver, below = os.getpid(), set(processes.tree(os.getpid())) - set(processes.tree(broker)) - {os.getpid()}
    jvm = {pid for pid in below if processes.name(pid) == "java"}
    parts = {"driver": {driver}, "jvm": jvm, "workers": below - jvm, "broker": {broker}}
    return {**{part: sum(map(processes.cpu_s, pids)) for part, pids in parts.items()}, "idle": processes.idle_s()}
