"""A service that is killed is followed by the one that stands by; two for every test run, twenty with `make kill`."""

from __future__ import annotations

import random
from statistics import median

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PROMISED_S = 10.0
UNDER_LOAD_S = 60.0
"""`make test` runs several files at once, and each of them a Spark: a claim takes its time there."""


def takes_over(world, kills: int, records: int) -> list[float]:
    """Through so many kills nothing is lost or repeated; gives how long each takeover took."""
    rng = random.Random(13)
    world.fill(records, parts=kills + 1)
    took = world.is_taken_over(kills, lambda: rng.uniform(0.5, 5.0))
    world.take([world.catches_up(world.file("calm"))])
    assert world.compare() > records / 20
    world.say(f"takeovers: median {median(took):.1f} s, longest {max(took):.1f} s")
    return took


@pytest.mark.long
def test_a_standby_takes_over_from_a_killed_service_and_nothing_is_lost_or_repeated(world):
    assert max(takes_over(world, kills=2, records=10_000)) < UNDER_LOAD_S


@pytest.mark.kill
@pytest.mark.timeout(3_600)
def test_a_standby_takes_over_within_ten_seconds_of_each_of_twenty_kills(world):
    assert max(takes_over(world, kills=20, records=100_000)) < PROMISED_S
