"""A store that is away for minutes while a service drives and another one stands by: both wait, and go on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.end_to_end.test_telemetry import get
from tests.kill.conftest import say, world  # noqa: F401 -- fixtures
from tests.kill.service import Service, Start, in_turn
from tests.kill.turns import World
from tests.lake.fault_proxy import Fate, FaultProxy
from tests.patience import wait_for
from tidegate.devkit.embedded_broker import free_ports
from tidegate.state.lake.place import Place

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(1_800)]

AWAY, EXPIRED = "the lake does not answer", "the credentials of the lake have expired"
PARTS = 4


@pytest.fixture
def new_lake(proxy: FaultProxy, tmp_path: Path) -> Callable[[Path], Place]:
    """All lakes of these tests are in the server behind the proxy."""
    return cache(lambda folder: proxy.server.place(f"{tmp_path.name}/{folder.relative_to(tmp_path)}"))


@pytest.mark.parametrize(
    ("fate", "seconds", "why"), [("reset", 150.0, AWAY), ("silent", 120.0, AWAY), ("expired", 60.0, EXPIRED)]
)
def test_a_driver_and_its_standby_wait_for_the_store_and_nothing_is_lost_or_repeated(
    world: World,  # noqa: F811
    proxy: FaultProxy,
    fate: Fate,
    seconds: float,
    why: str,
) -> None:
    world.fill(12_000, parts=PARTS)
    ports = free_ports(2)
    files = [_file(world, number, port) for number, port in enumerate(ports)]
    with in_turn([Start(file=file, standby=True) for file in files]) as services:
        driving = next(services).go()
        driving.wait_ready()
        waiting = next(services).go()
        waiting.wait_for("stands by")
        world.feed_part(seconds=5)
        time.sleep(2.0)
        proxy.always(fate)
        began = time.monotonic()
        world.feed_part(seconds=seconds)
        driving.wait_for("waits, for")
        assert why in driving.lines
        wait_for(lambda: why in _why_not_ready(ports[0]), "readiness tells why")
        assert get(ports[0], "/healthz")[0] == 200
        assert why in _status(files[0])
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        assert _driven(driving, waiting) == 1
        proxy.heal()
        world.feed_all()
        world.reach_the_end(driving)
        world.say(f"the end {time.monotonic() - began - seconds:.1f} s after the store was back")
        driven = _driven(driving, waiting)
        time.sleep(15.0)
        assert _driven(driving, waiting) == driven <= 2, "the operator goes to and fro"
        for service in (waiting, driving):
            service.drain()
    world.take([world.catches_up(world.file("calm"))])
    assert world.compare() > 600


def _file(world: World, number: int, port: int) -> Path:  # noqa: F811
    file = world.file(f"disturbed-{number}", state=f"./disturbed/state-{number}")
    file.write_text(f"{file.read_text()}telemetry: {{port: {port}}}\n")
    return file


def _why_not_ready(port: int) -> str:
    status, text = get(port, "/readyz")
    return "" if status == 200 else json.loads(text)["operators"]["updates"]["text"]


def _status(file: Path) -> str:
    """What `tidegate status` prints, whether or not it fails."""
    command = [sys.executable, "-m", "tidegate.cli.main", "status", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def _driven(*services: Service) -> int:
    """How often one of them has taken the operator."""
    return sum(service.lines.count("updates: ready") for service in services)
