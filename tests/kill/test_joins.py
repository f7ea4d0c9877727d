"""A join and its table are killed, each on its own and both at once (`make kill`); a few of the kills in every run."""

from __future__ import annotations

import random
from threading import Barrier

import pytest

from tests.kill.harness import PARTITIONS
from tests.kill.joins import JOIN, TABLE, JoinWorld, dies, dies_after, dies_with

RECORDS = 200_000
TABLE_POINTS = ["after_claim", "after_dirty_header:2", "after_complete_header:2", "before_commit:2", "after_commit:2"]
JOIN_POINTS = [
    "after_claim",
    "after_lease",
    "after_dirty_header:2",
    "after_half_of_output",
    "after_complete_header:2",
    "before_commit:2",
    "between_ends:2",
    "after_commit:2",
    "before_ends",
    "in_settling_before_end",
    "in_settling_after_end",
]
"""A join that waited for its table may release all that it holds in one batch: no second one then has output. And
a batch may have none, because the join waits: `before_ends` is reached by one that leaves output to settle."""
RANDOM_MOMENTS, TOGETHER = 5, 4


@pytest.fixture
def both(broker, topic, tmp_path, say, new_lake):
    """A join and its table, on topics of their own."""
    topics = {name: topic(partitions=PARTITIONS) for name in ("stream", "table", "output")}
    lake = new_lake(tmp_path / "lake")
    return JoinWorld(bootstrap=broker.bootstrap, topics=topics, folder=tmp_path, say=say, lake=lake)


@pytest.mark.kill
@pytest.mark.timeout(3_600)
def test_a_join_and_its_table_survive_every_kill_point_random_kills_and_the_loss_of_both(both):
    rng, together = random.Random(9), Barrier(2)
    moments = [rng.uniform(0.2, 5.0) for _ in range(TOGETHER)]
    at_once = [dies_with(together, seconds) for seconds in moments]
    alone = [dies_after(rng.uniform(0.2, 5.0)) for _ in range(RANDOM_MOMENTS)]
    compactions = [dies(f"{side}_compaction_commit", compact=TABLE) for side in ("before", "after")]
    turns = {
        TABLE: [*map(dies, TABLE_POINTS), *compactions, *alone, *at_once],
        JOIN: [*map(dies, JOIN_POINTS), dies("before_compaction_commit", compact=JOIN), *alone[:2], *at_once],
    }
    both.run(RECORDS, turns)
    both.check()


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_a_join_and_its_table_survive_a_few_kills(both):
    together = Barrier(2)
    turns = {
        TABLE: [dies("after_commit:2"), dies_with(together, 0.5)],
        JOIN: [dies("after_half_of_output:2"), dies_with(together, 0.5)],
    }
    both.run(20_000, turns)
    both.check()
