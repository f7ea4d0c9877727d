"""Deduplication survives a few kills: after a kill no record is first a second time."""

from __future__ import annotations

import pytest


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_no_first_record_is_lost_or_emitted_twice_through_kills(refusing_world):
    world = refusing_world
    world.described = {"kind": "deduplicate", "within": "10s", "grace": "3s"}
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
    assert world.compare_dead_letters() > 1_000
