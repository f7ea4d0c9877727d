"""A pipeline survives a few kills: every step goes on as if nothing had happened."""

from __future__ import annotations

import pytest

WINDOWS = {"tumbling": "4s", "grace": "5s"}
COUNT = {"count": True}
QUIET_KEYS = [
    {
        "name": "counts",
        "kind": "windowed_aggregation",
        "window": WINDOWS,
        "aggregate": {"count": True},
        "emit": "updates",
    },
    {"name": "final", "kind": "suppression", "until": "window_close"},
    {"filter": "count < 3"},
]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
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
