"""The service is killed with SIGKILL, all of its processes at once, while records flow."""

from __future__ import annotations

import random
import shutil
import time

import pytest

from tests.kill.harness import PARTITIONS, Feed, Service, committed, configure, records

RECORDS = 100_000
KILL_POINTS = [
    "after_dirty_header:3",
    "after_half_of_output:3",
    "after_commit:2",
    "in_settling_before_end",
    "between_ends:2",
]
RANDOM_MOMENTS = 3


@pytest.mark.kill
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_none_lost_none_twice_order_kept_through_kills(broker, topic, tmp_path):
    source, output, undisturbed = (topic(partitions=PARTITIONS) for _ in range(3))
    made = records(RECORDS)
    size = -(-RECORDS // (len(KILL_POINTS) + RANDOM_MOMENTS + 1))
    parts = [made[start : start + size] for start in range(0, RECORDS, size)]
    file = configure(tmp_path, "killed", broker.bootstrap, source, output, trigger="50ms")
    feed = Feed(broker.bootstrap, source)

    for point, part in zip(KILL_POINTS, parts, strict=False):
        service = Service(file, kill_at=point)
        if not point.startswith("in_settling"):  # there it dies before it is ready
            service.wait_ready()
        feed.start(part, seconds=3)
        service.wait_death()
    rng = random.Random(11)
    for moment, part in enumerate(parts[len(KILL_POINTS) : -1]):
        service = Service(file)
        service.wait_ready()
        feed.start(part, seconds=2)
        time.sleep(rng.uniform(0.1, 2.0))
        service.kill()
        if moment == 1:
            shutil.rmtree(tmp_path / "killed" / "state")
    feed.start(parts[-1], seconds=0.1)
    feed.join()
    Service(file, until_caught_up=True).wait_end()

    calm = configure(tmp_path, "calm", broker.bootstrap, source, undisturbed, trigger="0")
    Service(calm, until_caught_up=True).wait_end()
    expected = committed(broker.bootstrap, undisturbed)
    assert sum(map(len, expected)) > RECORDS / 20
    assert committed(broker.bootstrap, output) == expected
