"""A few of the kills, for every test run; `make kill` runs all of them."""

from __future__ import annotations

import pytest

from tests.kill.harness import LATE, SUPPRESSION


@pytest.mark.broker
@pytest.mark.spark
def test_no_record_is_lost_repeated_or_reordered_through_a_few_kills_and_a_takeover(refusing_world):
    world = refusing_world
    world.described = SUPPRESSION | LATE
    world.fill(20_000, parts=4)
    file, calm = world.file("disturbed"), world.file("calm")
    world.take(
        [
            world.dies(file, "after_half_of_output:2"),
            world.dies(file, "after_commit", stateless=True),
            world.dies(file, "in_settling_before_end"),
            world.stops(file, "before_commit"),
            world.continues(file),
            world.catches_up(calm),
        ]
    )
    assert world.compare() > 1_000
    assert world.compare_dead_letters() > 1_000
