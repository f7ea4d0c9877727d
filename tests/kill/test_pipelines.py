"""A pipeline survives kills: every step goes on as if nothing had happened. `make kill` comes to every kill point."""

from __future__ import annotations

import pytest

from tests.kill.test_kill import goes_through_every_kill_point

WINDOWS = {"tumbling": "4s", "grace": "5s"}
COUNT = {"count": True}
MOMENTS = 6
QUIET_KEYS = [
    {
        "name": "counts",
        "kind": "windowed_aggregation",
        "window": WINDOWS,
        "aggregate": COUNT,
        "emit": "updates",
    },
    {"name": "final", "kind": "suppression", "until": "window_close"},
    {"filter": "count < 3"},
]


THREE_STEPS = [
    {"name": "first", "kind": "deduplicate", "within": "10s", "grace": "5s"},
    {"name": "slow", "kind": "suppression", "until": {"time_limit": "2s"}},
    {"name": "counts", "kind": "windowed_aggregation", "window": WINDOWS, "aggregate": COUNT, "emit": "final"},
]


@pytest.mark.kill
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("steps", [QUIET_KEYS, THREE_STEPS], ids=["the chain of KIP-328", "three steps"])
def test_no_step_loses_or_repeats_anything_through_every_kill_point_and_an_idle_close(world, steps):
    world.described = {"kind": "pipeline", "steps": steps}
    goes_through_every_kill_point(world, MOMENTS, {"idle_after": "1s"})


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_no_alert_about_a_quiet_key_is_lost_or_told_twice_through_kills(refusing_world):
    world = refusing_world
    world.described = {"kind": "pipeline", "steps": QUIET_KEYS}
    world.fill(20_000, parts=3)
    file, calm = world.file("disturbed"), world.file("calm")
    world.take(
        [
            world.dies(file, "after_half_of_output:2"),
            world.dies(file, "after_commit:2", stateless=True),
            world.dies(file, "before_commit:2"),
            world.catches_up(file),
            world.catches_up(calm),
        ]
    )
    assert world.compare() > 1_000
