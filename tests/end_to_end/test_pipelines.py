"""Pipelines over real parts: several steps with one log, one commit and one transaction."""

from __future__ import annotations

import shutil

import pytest

from tests.end_to_end.readers.by_duckdb import duck
from tests.end_to_end.test_joins import JOIN, TABLE, JoinedWorld
from tests.end_to_end.test_pipeline_branches import stopped_before_the_end_of_transactions, told_of
from tests.end_to_end.test_windows import results
from tidegate.spark import register_views
from tidegate.state.committed_windows import CommittedWindows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

QUIET_USERS = [
    {
        "name": "per_window",
        "kind": "windowed_aggregation",
        "window": {"tumbling": "10s", "grace": "5s"},
        "aggregate": {"count": True},
        "emit": "updates",
    },
    {
        "name": "final",
        "kind": "suppression",
        "until": "window_close",
        "buffer": {"max_keys": 9, "when_full": "shut_down"},
    },
    {"filter": "count < 3"},
]
"""KIP-328's own example: alerts about users with fewer than three events in a window, once the window has closed."""


@pytest.fixture
def quiet_users(world):
    """`quiet_users(...)`: a world whose operator is the pipeline."""
    return lambda **options: world(kind="pipeline", key="string", steps=QUIET_USERS, **options)


def test_quiet_users_are_told_once_through_a_compaction_and_a_lost_state(quiet_users, broker):
    """[0, 10 000) closes at 15 000: a has 3 events in it, b has 2, and c has 1. A filter drops a, whose time counts."""
    here = quiet_users()
    here.feed([(0, key, b"x", at) for at, key in enumerate([b"a", b"b", b"a", b"c", b"b"], 1_000)])
    driver = here.run()
    driver.claim.operator.compact()
    shutil.rmtree(here.application.state)
    here.feed([(0, b"a", b"x", 9_000), (0, b"d", b"x", 15_000), (0, b"a", b"late", 9_500)])
    driver = here.run()
    assert results(broker, here.output) == [
        ("b", 0, 10_000, 2, "window_close"),
        ("c", 0, 10_000, 1, "window_close"),
    ]
    newest = driver.claim.operator.newest
    assert (newest.partitions[0].totals.late, newest.partitions[0].totals.applied) == (1, 7)
    ledger = newest.changed[0].ledger
    assert [ledger[step].records_in for step in ("per_window", "final", "3")] == [3, 2, 3]
    assert all(counts.balanced for counts in ledger.values())


@pytest.mark.spark_reads
def test_each_step_can_be_queried_as_of_any_batch(quiet_users):
    here = quiet_users()
    here.feed([(0, b"a", b"x", 1_000), (0, b"b", b"x", 2_000)])
    before = here.run().claim.operator.log.version
    here.feed([(0, b"d", b"x", 15_000), (0, b"a", b"late", 9_500)])
    here.run()
    waiting = "SELECT key, value FROM updates_final_buffer ORDER BY key"
    windows = "SELECT key, value, final FROM updates_per_window_windows ORDER BY key, window_start"
    views = register_views(here.spark, here.application)
    assert {"updates_final_buffer", "updates_per_window_windows", "updates_steps"} <= set(views)
    assert rows(here, waiting) == [("d", "1")]
    assert rows(here, "SELECT step, stream_time, received FROM updates_steps ORDER BY step") == [
        ("final", 15_000, 3),
        ("per_window", 15_000, 4),
    ]
    assert rows(here, "SELECT step, source, topic, CAST(value AS STRING) FROM updates_late") == [
        ("per_window", 3, here.source, "late")
    ]
    register_views(here.spark, here.application, before)
    assert rows(here, waiting) == [("a", "1"), ("b", "1")]
    assert rows(here, windows) == [("a", "1", False), ("b", "1", False)]
    held = "SELECT DISTINCT key::VARCHAR FROM log WHERE kind = 'state' AND step = 'final' ORDER BY 1"
    assert duck(here.log).execute(held).fetchall() == [("a",), ("b",), ("d",)]
    of_step = CommittedWindows(here.log, step="per_window")
    assert [(window.key, window.value) for window in of_step.fetch_all()] == [(b"d", b"1")]
    assert [window.key for window in CommittedWindows(here.log, before, "per_window").fetch_all()] == [b"a", b"b"]
    assert CommittedWindows(here.log, step="final").fetch_all() == []


def rows(here, query):
    """The result of a query."""
    return [tuple(row) for row in here.spark.sql(query).collect()]


def test_a_bound_of_an_inner_step_stops_the_service_before_the_record_that_reached_it(world, broker):
    """A time limit of 1 s, then a bound of 2 keys: the record at 9 000 releases a, b and c at once"""
    steps = [
        {"name": "slow", "kind": "suppression", "until": {"time_limit": "1s"}},
        {
            "name": "bounded",
            "kind": "suppression",
            "until": {"time_limit": "1h"},
            "buffer": {"max_keys": 2, "when_full": "shut_down"},
        },
    ]
    here = world(kind="pipeline", steps=steps)
    here.feed([(0, key, b"x", at) for at, key in enumerate([b"a", b"b", b"c"])] + [(0, b"d", b"x", 9_000)])
    with pytest.raises(Exception, match=r"bounded\.buffer\.max_keys"):
        here.run()


def test_a_stream_is_joined_counted_and_told_when_windows_close(spark, broker, topic, tmp_path, new_lake):
    """k1 has a version from 0 on and k2 none: of the window [0, 10 000) there is one result, of k1's two records"""
    here = JoinedWorld(spark, broker, topic, tmp_path, new_lake(tmp_path / "lake"))
    here.joining = {"kind": "pipeline", "steps": COUNTED_MATCHES}
    here.put((1, b"fact", 0))
    here.write("stream", (1, b"x", 1_000), (1, b"x", 2_000), (2, b"x", 3_000))
    here.run(JOIN)
    shutil.rmtree(here.folder / "state")
    here.put((1, b"another", 4_000))
    here.write("stream", (1, b"x", 10_000))
    driver = here.run(JOIN)
    assert results(broker, here.topics["output"], 1) == [("k1", 0, 10_000, 2, "window_close")]
    assert set(driver.claim.operator.newest.inputs) == {TABLE}


COUNTED_MATCHES = [
    {"name": "matched", "kind": "stream_table_join", "table": TABLE, "join": "inner"},
    QUIET_USERS[0] | {"window": {"tumbling": "10s", "grace": "0s"}},
    {"name": "final", "kind": "suppression", "until": "window_close"},
]


@pytest.mark.spark_reads
def test_a_pipeline_without_state_passes_each_record_once_until_a_step_with_state_comes(world, broker, monkeypatch):
    steps = [{"filter": "key <> 'a'"}, {"require": "value <> 'bad'", "reason": "it is bad"}]
    here = world(kind="pipeline", key="string", value="string", steps=steps)
    here.feed([(0, b"a", b"x", 1_000), (0, b"b", b"y", 2_000), (0, b"c", b"bad", 3_000)])
    stopped_before_the_end_of_transactions(here, monkeypatch)
    shutil.rmtree(here.application.state)
    here.feed([(0, b"b", b"z", 500)])
    known = here.run().claim.operator.newest.partitions[0]
    assert [row[:3] for row in told_of(broker, here.output)] == [(b"b", b"y", 2_000), (b"b", b"z", 500)]
    assert (known.totals.applied, known.totals.rejected, known.stream_time) == (3, 1, 2_000)
    register_views(here.spark, here.application)
    assert rows(here, "SELECT step, source, cause FROM updates_emissions ORDER BY source") == [
        ("1", 1, "passed"),
        ("1", 3, "passed"),
    ]
    refused = "SELECT step, source, topic, cause FROM updates_rejected"
    assert rows(here, refused) == [("1", 2, here.source, "it is bad")]
    first = {"name": "first", "kind": "deduplicate", "within": "1h", "grace": "10s"}
    here.changed(steps=[*steps, first])
    here.feed([(0, b"b", b"again", 2_500), (0, b"b", b"more", 2_600)])
    here.run()
    assert [row[1] for row in told_of(broker, here.output)] == [b"y", b"z", b"again"]
