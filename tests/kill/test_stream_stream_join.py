"""A join of two topics survives a few kills: no pair is lost or emitted twice, and the order is that without kills."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from tests.kill.harness import PARTITIONS, Feed, committed, flow, records

LEFT, RIGHT = 12_000, 5_000
BEFORE_MS, AFTER_MS = 1_000, 2_000


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_no_pair_of_two_topics_is_lost_or_emitted_twice_through_kills(world, topic):
    right = topic(partitions=PARTITIONS)
    times = {"before": f"{BEFORE_MS}ms", "after": f"{AFTER_MS}ms", "grace": "6s"}
    world.described = {"kind": "stream_stream_join", "right": right, "join": "left", **times}
    others = Feed(world.bootstrap, right)
    others.start(list(flow(RIGHT, seed=8)), 0.0)
    others.finish()
    world.fill(LEFT, parts=1)
    world.feed_all()
    file, calm = world.file("disturbed"), world.file("calm")
    world.take(
        [
            world.dies(file, "after_half_of_output:1"),
            world.dies(file, "before_commit:1", stateless=True),
            world.dies(file, "after_commit:1"),
            world.catches_up(file),
            world.catches_up(calm),
        ]
    )
    assert world.compare() > 1_000
    found = [
        (json.loads(value)["left"]["n"], json.loads(value)["right"]["n"])
        for partition in committed(world.bootstrap, world.outputs["calm"])
        for _, value, _, cause in partition
        if cause == b"matched"
    ]
    assert sorted(found) == sorted(pairs())


def pairs() -> list[tuple[int, int]]:
    """The numbers of all records that are partners; none is late, because the grace is longer than the disorder."""
    of_key = defaultdict(list)
    for _, key, value, timestamp in flow(RIGHT, seed=8):
        of_key[key].append((timestamp, json.loads(value)["n"]))
    return [
        (json.loads(value)["n"], number)
        for _, key, value, timestamp in records(LEFT)
        for partner, number in of_key[key]
        if timestamp - BEFORE_MS <= partner <= timestamp + AFTER_MS
    ]
