"""The whole suite of kills and takeovers (`make kill`): every kill point, random moments, stops, zombies."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial

import pytest

from tests.kill.harness import PARTITIONS, TABLE, WINDOWS
from tests.kill.turns import World
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic

RECORDS = 200_000
RANDOM_MOMENTS = 20
KILL_POINTS = [
    "after_claim",
    "between_initialisations",
    "after_dirty_header:2",
    "after_half_of_output:2",
    "after_complete_header:2",
    "before_commit:2",
    "between_ends:2",
    "after_commit:2",
    "in_settling_before_end",
    "in_settling_after_end",
    "before_compaction_commit",
    "after_compaction_commit",
]
"""An order in which what a point needs is left by the one before: settling needs output that is not published. Of
`between_ends:2` none may be left: first batches may be of one partition, while others are on their way back."""
STOP_POINTS = ["before_commit", "after_commit", "in_settling_before_end", "between_ends"]
STOP_POINTS += ["after_commit", "in_settling_after_end", "after_claim", "between_initialisations"]
STOP_POINTS += ["before_compaction_commit", "after_compaction_commit"]
"""`between_ends` may leave nothing to settle: a batch of few records has one transaction."""
TASK_POINTS = ["after_dirty_header", "after_half_of_output", "after_complete_header"]
CHANGED = {"until": {"time_limit": "3s"}, "idle_after": "1s"}

pytestmark = [pytest.mark.kill, pytest.mark.timeout(3_600)]


def test_no_record_is_lost_repeated_or_reordered_through_every_kill_point_and_random_kills(world):
    goes_through_every_kill_point(world, RANDOM_MOMENTS, CHANGED)


def test_final_results_of_windows_are_never_repeated_through_every_kill_point_and_an_idle_close(world):
    world.described = WINDOWS
    goes_through_every_kill_point(world, 6, {"idle_after": "1s"})


def goes_through_every_kill_point(world, moments, change):
    """And through so many random moments, a change of the configuration and an idle advance."""
    world.fill(RECORDS, parts=len(KILL_POINTS) + moments + 1)
    file, calm = world.file("disturbed"), world.file("calm")
    changed, calm_changed = world.file("disturbed-changed", **change), world.file("calm-changed", **change)
    world.take(
        [
            *[world.dies(file, at, stateless=number % 4 == 3) for number, at in enumerate(KILL_POINTS)],
            *_random_moments(world, file, moments),
            world.catches_up(file),
            world.catches_up(calm),
            world.dies(changed, "during_configuration_change"),
            world.dies(changed, "during_idle_advance"),
            world.lets_all_go(changed),
            world.lets_all_go(calm_changed),
        ]
    )
    assert world.compare() > RECORDS / 20


def _random_moments(world, file, moments):
    rng = random.Random(11)
    return [
        world.dies_after(file, rng.uniform(0.2, 5.0), stateless=number % 4 == 1, compact=number % 5 == 2)
        for number in range(moments)
    ]


def test_dead_letters_of_an_operator_without_output_are_written_once_through_every_kill_point(refusing_world):
    world, moments = refusing_world, 4
    world.outputs, world.described = {}, TABLE
    world.fill(RECORDS, parts=len(KILL_POINTS) + moments)
    file, calm = world.file("disturbed"), world.file("calm")
    world.take(
        [
            *[world.dies(file, at, stateless=number % 4 == 3) for number, at in enumerate(KILL_POINTS)],
            *_random_moments(world, file, moments),
            world.catches_up(file),
            world.catches_up(calm),
        ]
    )
    assert world.compare_dead_letters() > RECORDS / 20


def test_a_paused_driver_that_was_replaced_changes_nothing_when_it_continues(world):
    """In a task a driver holds the lock of its local state: the next one is on another machine, or waits for it."""
    world.fill(RECORDS, parts=2 * (len(STOP_POINTS) + 2 * len(TASK_POINTS) + 3))
    file, machines = world.file("disturbed"), [world.file(f"disturbed-{n}", state=f"./state-{n}") for n in range(3)]
    changed, idle = {"rewind_window": "6d"}, {"rewind_window": "6d", "idle_after": "1s"}
    world.take(
        [
            *[world.stops(file, at) for at in STOP_POINTS],
            *[world.stops(file, at, at_once=True) for at in ["before_commit", *TASK_POINTS]],
            world.stops(file, "after_commit", at_once=True),
            *[world.stops(machine, at) for machine, at in zip(machines, TASK_POINTS, strict=False)],
            world.stops(world.file("disturbed-changed", state="./state-3", **changed), "during_configuration_change"),
            world.stops(world.file("disturbed-idle", **idle), "during_idle_advance"),
            world.lets_all_go(world.file("disturbed-last", **idle)),
            world.lets_all_go(world.file("calm", idle_after="1s")),
        ]
    )
    assert world.compare() > RECORDS / 20


def test_no_record_is_lost_or_repeated_if_killed_while_spark_starts(world):
    points, rng = [*TASK_POINTS, "before_commit", "after_commit", "between_ends"], random.Random(7)
    moments = [rng.uniform(0.5, 8.0) for _ in range(6)]
    world.fill(40_000, parts=len(points) + len(moments))
    file, calm = world.file("disturbed"), world.file("calm")
    world.take(
        [
            *[world.dies(file, at, cold=True) for at in points],
            *[world.dies_after(file, moment, cold=True, stateless=moment > 6) for moment in moments],
            world.catches_up(file),
            world.catches_up(calm),
        ]
    )
    assert world.compare() > 1_000


def test_a_task_that_outlives_its_attempt_by_two_seconds_changes_nothing(world):
    world.fill(20_000, parts=6)
    file, calm = world.file("disturbed"), world.file("calm")
    turns = [world.outlives(file, at) for at in TASK_POINTS for _round in range(2)]
    world.take([*turns, world.catches_up(file), world.catches_up(calm)])
    assert world.compare() > 1_000


@pytest.fixture
def brokers(tmp_path):
    """A broker of this test alone, and those that are started after it on the same data and port; the last is up."""
    started = [Broker.start(tmp_path / "broker", paths.jars("broker"))]
    yield started
    started[-1].stop()


def test_the_service_waits_until_a_killed_broker_is_started_again(brokers, tmp_path, say, new_lake):
    bootstrap, rng = brokers[0].bootstrap, random.Random(5)
    for name in ("source", "disturbed", "calm"):
        create_topic({"bootstrap.servers": bootstrap}, name, PARTITIONS, {})
    outputs = {name: name for name in ("disturbed", "calm")}
    world = World(bootstrap=bootstrap, source="source", outputs=outputs, folder=tmp_path, say=say, new_lake=new_lake)
    world.fill(RECORDS // 4, parts=4)
    file, calm = world.file("disturbed"), world.file("calm")
    deaths = [partial(_broker_dies, brokers, rng.uniform(0.5, 4.0), rng.uniform(0.0, 10.0)) for _ in range(4)]
    world.take([world.sees_its_broker_die(file, deaths), world.catches_up(file), world.catches_up(calm)])
    assert world.compare() > RECORDS / 80


def _broker_dies(brokers, after_s, for_s):
    """It was killed some time from now, and answers again some time later, on the same data and port."""
    time.sleep(after_s)
    died = brokers[-1]
    os.kill(died.pid, signal.SIGKILL)
    while Broker.running(died.data):
        time.sleep(0.05)
    time.sleep(for_s)
    brokers.append(Broker.start(died.data, paths.jars("broker"), port=died.port))
