"""Spark clusters on this machine, and what can happen to their parts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.patience import wait_for
from tidegate.devkit.embedded_broker import HOST
from tidegate.state.local.header import HeaderFile
from tidegate.state.protocol_decisions import Header

_PYSPARK = Path(pyspark.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """A standalone cluster: its URL, and the processes of its workers by their folders."""

    url: str
    workers: dict[Path, int]


@contextmanager
def standalone(folder: Path, port: int, workers: int = 2) -> Iterator[Standalone]:
    """A running cluster from PySpark's own jars, whose workers have one core each.

    Each has a folder of its own, and its executors have their states in the folder `state` there.
    """
    url = f"spark://{HOST}:{port}"
    master = _part(folder / "master", "org.apache.spark.deploy.master.Master", "--port", str(port))
    running = {
        work: _part(
            *(work, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "2g"),
            *("--work-dir", str(work), url),
            state=work / "state",
        )
        for work in (folder / f"machine-{number}" for number in range(workers))
    }
    try:
        log = folder / "master" / "log"
        wait_for(lambda: log.read_text().count("Registering worker") == workers, "the workers do not register")
        yield Standalone(url=url, workers={work: process.pid for work, process in running.items()})
    finally:
        for process in (*running.values(), master):
            process.kill()
            process.wait()


def _part(folder: Path, name: str, *arguments: str, state: Path | None = None) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "512m"}
    if state is not None:
        environment["TIDEGATE_WORKER_STATE"] = str(state)
    command = [str(_PYSPARK / "bin" / "spark-class"), name, "--host", HOST, "--webui-port", "0", *arguments]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def spark_home(folder: Path) -> Path:
    """The new folder stands for PySpark's, so that executors write below it and not among the installed packages."""
    folder.mkdir()
    for entry in _PYSPARK.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


def states(machine: Path) -> dict[int, Header]:
    """The headers of the local states on a machine's disk, by partition."""
    headers = {int(path.parent.name): HeaderFile(path).read() for path in (machine / "state").glob("*/*/*/header")}
    return {partition: header for partition, header in headers.items() if header is not None}


def executors(ancestor: int) -> list[int]:
    """The executors among the descendants of a process."""
    return [pid for pid in descendants(ancestor) if b"CoarseGrainedExecutorBackend" in _command(pid)]


def descendants(ancestor: int) -> list[int]:
    """The process ids of all that a process has started, directly or not."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found, new = [], [ancestor]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return found


@contextmanager
def lost(executor: int, *others: int, zombies_s: float) -> Iterator[None]:
    """At the end of the block the executor and the others die, in the middle of tasks that have begun inside it.

    Its Python workers, which have stood still all the time, go on so many seconds later.
    """
    python = descendants(executor)
    for pid in python:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in (executor, *others):
        os.kill(pid, signal.SIGKILL)
    time.sleep(zombies_s)
    for pid in reversed(python):  # the daemon last: it would end them
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _parent(entry: Path) -> int | None:
    with suppress(OSError):
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return None
