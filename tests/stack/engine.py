"""The stack on a Docker engine of this machine, as a project of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "COMPOSE_PROJECT_NAME": "tidegatetest",
    "KAFKA_PORT": "29192",
    "PROMETHEUS_PORT": "29190",
    "GRAFANA_PORT": "29130",
}
_BACK_WITHIN_S = 300.0


def compose() -> list[str]:
    """The compose command that there is: version 2's, else 1's."""
    second = shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    )
    return ["docker", "compose"] if second and second.returncode == 0 else ["docker-compose"]


def run(*command: str) -> str:
    """What the command printed; it must succeed."""
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def fresh_stack() -> Iterator[None]:
    """A stack with empty volumes is up and healthy; at the end nothing of it is left."""
    run(*compose(), "down", "--volumes", "--remove-orphans")
    try:
        run("infra/stack/up.sh", *compose())
        yield
    finally:
        run(*compose(), "down", "--volumes", "--remove-orphans")


def demo(days: int, at: str = "", do: Callable[[], None] = lambda: None) -> str:
    """What the demo said; it was right. Once a line begins with `at`, `do` is done, while the demo goes on."""
    command = [*compose(), "run", "--rm", "-T", "demo", "python", "-u", "-m", "services.stack_demo"]
    lines, left = [], [do] if at else []
    with subprocess.Popen(
        [*command, "/etc/tidegate/flights.yaml", "--days", str(days)],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if left and line.startswith(at):
                left.pop()()
    said = "".join(lines)
    assert process.returncode == 0 and not left, said
    return said


def container(service: str) -> dict[str, Any]:
    """What the engine knows of the service's container."""
    found: dict[str, Any] = json.loads(run("docker", "inspect", run(*compose(), "ps", "-q", service).strip()))[0]
    return found


def kill(service: str) -> None:
    """The container's first process has got SIGKILL, as from the kernel: the engine does not know of it beforehand."""
    os.kill(container(service)["State"]["Pid"], signal.SIGKILL)


def wait_until_back(service: str, restarts: int) -> None:
    """The container has been started again and is healthy."""
    deadline = time.monotonic() + _BACK_WITHIN_S
    while (found := container(service))["State"]["Health"]["Status"] != "healthy" or found["RestartCount"] <= restarts:
        assert time.monotonic() < deadline, f"{service}: {found['State']}"
        time.sleep(1)


def ask_prometheus(query: str, seconds: int) -> list[Any]:
    """The series that the query gives for the last seconds, as a panel asks for them."""
    now = float(json.loads(_prometheus("query", query="time()"))["data"]["result"][1])
    told = _prometheus("query_range", query=query, start=now - seconds, end=now, step=15)
    series: list[Any] = json.loads(told)["data"]["result"]
    return series


def _prometheus(what: str, **parameters: object) -> bytes:
    url = f"http://127.0.0.1:{ENVIRONMENT['PROMETHEUS_PORT']}/api/v1/{what}?{urlencode(parameters)}"
    with urlopen(url, timeout=30) as answer:
        told: bytes = answer.read()
    return told
