"""Workers that stay, killed and frozen while records come: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.clusters.cluster import descendants
from tests.kill.service import Service
from tests.kill.turns import World
from tests.patience import wait_for

REPLACED_S = 45.0
"""How long a replacement may take on a busy machine, where it takes half a second on an idle one. One that waits for a
slot that a lost task holds takes longer, or never comes."""
DAEMON = b"tidegate.runtime.spark.python_daemon"
FROZEN = "gives no sign of life"
NONE_LEFT = "no worker has connected"


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_no_record_is_lost_or_repeated_when_workers_are_killed_and_frozen(world: World) -> None:
    ways = [dies, partial(stands_still, seconds=3.0), freezes]
    goes_through(world, 15_000, ways)


@pytest.mark.kill
@pytest.mark.timeout(3_600)
def test_no_record_is_lost_or_repeated_when_workers_are_killed_and_frozen_for_long(world: World) -> None:
    rng = random.Random(17)
    choices = [dies, all_die, partial(stands_still, seconds=5.0), freezes]
    goes_through(world, 200_000, [*choices, *(rng.choice(choices) for _ in range(26))])


def goes_through(world: World, records: int, ways: Sequence) -> None:
    """The output is that of an undisturbed service; at least one worker was frozen, and all were replaced in time."""
    world.fill(records, parts=len(ways))
    file, calm = world.file("disturbed"), world.file("calm")
    took: list[float] = []
    world.take([world.loses_workers(file, [timed(way, took) for way in ways]), world.catches_up(calm)])
    world.say(f"workers were replaced within {max(took):.1f} s")
    assert world.compare() > records / 20
    lines = "".join(log.read_text() for log in file.parent.glob("disturbed.*.log"))
    assert FROZEN in lines
    assert NONE_LEFT not in lines
    assert max(took) < REPLACED_S, took


def timed(way: Callable[[Service], None], took: list[float]) -> Callable[[Service], None]:
    """The way, after which as many workers are there as before; notes how long that took."""

    def act(service: Service) -> None:
        way(service)
        began = time.monotonic()
        workers(service)
        took.append(time.monotonic() - began)

    return act


def dies(service: Service) -> None:
    """A worker is killed at some moment."""
    time.sleep(random.uniform(0.0, 2.0))
    os.kill(random.choice(workers(service)), signal.SIGKILL)


def all_die(service: Service) -> None:
    """All workers are killed at some moment, one right after the other."""
    time.sleep(random.uniform(0.0, 2.0))
    for pid in workers(service):
        os.kill(pid, signal.SIGKILL)


def stands_still(service: Service, seconds: float) -> None:
    """A worker stands still for less than the time after which it counts as lost."""
    pid = random.choice(workers(service))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def freezes(service: Service) -> None:
    """All workers stand still until the driver gives them up, which kills them."""
    frozen, before = workers(service), service.lines.count(FROZEN)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    service.wait_for(FROZEN, before + 1)
    wait_for(lambda: any(not Path(f"/proc/{pid}").exists() for pid in frozen), "no frozen worker was killed")


def workers(service: Service) -> list[int]:
    """The processes that the daemon of Spark's Python workers has forked; there are some soon."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [pid for pid in descendants(service.process) if is_worker(pid)]
        return len(found) >= 2

    wait_for(there, "there are no workers")
    return found


def is_worker(pid: int) -> bool:
    """Whether it is a fork of the daemon, and not the daemon, whose parent is a JVM with a setting that names it."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return all(DAEMON in Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0") for each in (pid, parent))
    except OSError:
        return False
