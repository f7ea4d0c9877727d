"""Which partitions a micro-batch touches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata import described
from tests.runtime.telemetry.test_batch_metrics import meta
from tidegate.contracts.batch_metadata import Counts
from tidegate.runtime.batch_loop.planning import (
    IDLE_STEP_MS,
    PlanBasis,
    plan_flush,
    plan_idle,
    plan_records,
)
from tidegate.runtime.spark.jobs import spread

pytestmark = pytest.mark.fast


READ = {0: 10, 1: 20, 2: 30}
"""High watermarks where everything is read."""


def basis(newest, lineage=None):
    return PlanBasis(newest, lineage or {}, {})


def standing(**changes):
    return described(meta(4, 0, {}), next_offset=READ, stream_time={0: 500}, **changes)


def test_a_partition_is_planned_from_its_offset_to_the_last_stable_offset():
    plans = plan_records(basis(standing()), {"in": {0: 15, 1: 20, 2: 31}})
    assert [(p.partition, p.start, p.end, p.stream_time) for p in plans] == [(0, 10, 15, 500), (2, 30, 31, -1)]


def test_a_task_receives_last_lineage_and_newest_snapshot():
    lineage = {0: [(1, "a"), (3, "c")]}
    now = standing(last={0: (3, "c")}, snapshot_batch={0: 2})
    told, untouched = (plan.wanted for plan in plan_records(basis(now, lineage), {"in": {0: 15, 1: 25}}))
    assert (told.last, told.lineage, told.snapshot) == ((3, "c"), ((1, "a"), (3, "c")), 2)
    assert (untouched.last, untouched.lineage, untouched.snapshot) == (None, (), -1)
    assert (told.epoch, told.batch) == (now.epoch, now.batch + 1)


def test_a_partition_whose_publication_is_not_settled_is_left_out():
    assert [p.partition for p in plan_records(basis(standing()), {"in": {0: 15, 2: 31}}, left_out={0})] == [2]


def test_stream_time_of_an_idle_partition_grows_by_the_wall_time_since_it_became_idle():
    """last record at 0 s, idle after 10 s; at 15 s it has been idle for 5 s"""
    held = standing(active_clock={0: 0}, totals={0: Counts(held=1)})
    (plan,) = plan_idle(basis(held), {"in": READ}, 15_000, 10_000)
    assert (plan.action, plan.start, plan.end, plan.advance_to) == ("idle", 10, 10, 500 + 5_000)


def test_a_partition_is_not_idle_while_records_of_open_transactions_wait_after_its_last_stable_offset():
    held = standing(active_clock={0: 0}, totals={0: Counts(held=1)})
    assert plan_idle(basis(held), {"in": {**READ, 0: 60}}, 15_000, 10_000) == []
    assert plan_idle(basis(held), {"in": {1: 20, 2: 30}}, 15_000, 10_000) == []


def test_idle_time_is_counted_once():
    held = standing(active_clock={0: 0}, advanced_clock={0: 15_000}, totals={0: Counts(held=1)})
    (plan,) = plan_idle(basis(held), {"in": READ}, 17_000, 10_000)
    assert plan.advance_to == 500 + 2_000


def test_an_idle_advance_waits_until_it_is_worth_a_commit_and_for_something_held():
    held = standing(active_clock={0: 0}, totals={0: Counts(held=1)})
    assert plan_idle(basis(held), {"in": READ}, 10_000 + IDLE_STEP_MS - 1, 10_000) == []
    assert plan_idle(basis(described(held, totals={0: Counts()})), {"in": READ}, 60_000, 10_000) == []


def test_a_flush_touches_only_partitions_that_hold_records():
    plans = plan_flush(basis(standing(totals={0: Counts(), 2: Counts(held=4)})))
    assert [(p.partition, p.action) for p in plans] == [(2, "flush")]


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=40), st.integers(1, 8))
def test_plans_are_spread_over_the_tasks_without_loss_and_about_evenly(sizes, tasks):
    now = described(meta(0, 0, {}), next_offset=dict.fromkeys(range(len(sizes)), 0))
    plans = plan_records(basis(now), {"in": dict(enumerate(sizes))})
    groups = spread(plans, tasks)
    assert sorted(p.partition for group in groups for p in group) == list(range(len(sizes)))
    assert len(groups) == min(tasks, len(sizes))
    loads = [sum(p.end - p.start for p in group) for group in groups]
    assert max(loads) <= min(loads) + max(sizes) + len(sizes)
