"""Windows of event time over real parts: results in Kafka and in SQL, reading the state, bad days."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter

import pytest

from tests.end_to_end.test_service import consume
from tests.patience import wait_for
from tidegate.cli.main import main
from tidegate.contracts.clock import SYSTEM_CLOCK, SystemClock
from tidegate.contracts.errors import UserError
from tidegate.spark import register_views
from tidegate.state.committed_windows import CommittedWindows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

FAR = 10_000_000
TUMBLING = {"window": {"tumbling": "10s", "grace": "5s"}, "aggregate": {"count": True}, "emit": "final"}


@pytest.fixture
def windowed(world):
    """`windowed(window=..., aggregate=..., emit=...)`: a world whose operator aggregates windows."""
    return lambda **operator: world(kind="windowed_aggregation", **{**TUMBLING, **operator})


def results(broker, topic, partition=0):
    """(key, start, end, value, cause) of each result, as any consumer reads them."""
    found = []
    for message in consume(broker, topic, partition):
        headers = dict(message.headers())
        bounds = (int(headers[f"tidegate-window-{side}"]) for side in ("start", "end"))
        value = None if message.value() is None else json.loads(message.value())
        found.append((message.key().decode(), *bounds, value, headers["tidegate-cause"].decode()))
    return found


def test_each_window_gives_one_final_result_with_its_bounds_in_headers(windowed, broker):
    """[0, 10 000) takes 3 500, which comes at 12 000, and closes at 15 000"""
    here = windowed()
    here.feed([(0, b"a", b"x", at) for at in (1_000, 12_000, 3_500, 14_999)])
    here.run()
    assert results(broker, here.output) == []
    here.feed([(0, b"b", b"x", 15_000), (0, b"a", b"late", 9_000)])
    driver = here.run()
    assert results(broker, here.output) == [("a", 0, 10_000, 2, "window_close")]
    assert driver.claim.operator.newest.partitions[0].totals.late == 1


@pytest.mark.spark_reads
def test_suppressing_all_changes_until_windows_close_equals_final_results(windowed, world, broker):
    """The updates of a window that takes 3 records, one of them after its end, held back by a second service"""
    here = windowed(emit="updates")
    held = world(beside="suppressed", until="window_close", grace="5s", input=here.output)
    here.feed([(0, b"a", b"x", at) for at in (1_000, 12_000, 3_500, 14_999)] + [(0, b"b", b"x", 2_000)])
    here.run()
    held.run()
    shutil.rmtree(held.application.state)
    here.feed([(0, b"b", b"x", 15_000), (0, b"a", b"late", 9_000)])
    here.run()
    driver = held.run()
    driver.claim.operator.compact()
    assert results(broker, held.output) == [("a", 0, 10_000, 2, "window_close"), ("b", 0, 10_000, 1, "window_close")]
    register_views(held.spark, held.application)
    waiting = held.spark.sql("SELECT CAST(key AS STRING), window_start, window_end FROM updates_buffer ORDER BY key")
    assert [tuple(row) for row in waiting.collect()] == [("a", 10_000, 20_000), ("b", 10_000, 20_000)]


@pytest.mark.spark_reads
def test_a_suppression_with_a_limit_keeps_kafka_s_windowed_keys_byte_for_byte_and_views_show_the_window(
    windowed, world, broker
):
    """Updates of [0, 10 000) wait until 15 000: 5 s behind the window's end"""
    here = windowed(emit="updates", output_windows="kafka")
    read = {"topic": here.output, "key": {"windows": {"time": "10s"}, "of": "string"}}
    held = world(beside="held", until={"time_limit": "5s"}, input=read, output_windows="kafka")
    here.feed([(0, b"a", b"x", at) for at in (1_000, 12_000, 3_500, 14_999)] + [(0, b"b", b"x", 2_000)])
    here.feed([(0, b"b", b"x", 15_000)])
    here.run()
    held.run()
    first = bytes(8)
    assert [(each.key(), each.value()) for each in consume(broker, held.output, 0)] == [
        (b"a" + first, b"2"),
        (b"b" + first, b"1"),
    ]
    register_views(held.spark, held.application)
    waiting = held.spark.sql("SELECT key, window_start, window_end FROM updates_buffer ORDER BY key")
    assert [tuple(row) for row in waiting.collect()] == [("a", 10_000, 20_000), ("b", 10_000, 20_000)]
    gone = held.spark.sql("SELECT key, window_start, window_end FROM updates_emissions ORDER BY key")
    assert [tuple(row) for row in gone.collect()] == [("a", 0, 10_000), ("b", 0, 10_000)]


def test_exactly_one_final_result_through_restarts_compactions_and_a_deleted_state(windowed, broker):
    here, rng = windowed(window={"hopping": "10s", "advance": "5s", "grace": "20s"}), random.Random(3)
    made = [(0, b"k%d" % rng.randrange(20), b"x", max(0, at * 20 - rng.randrange(20_000))) for at in range(5_000)]
    expected = Counter(
        (key.decode(), start, start + 10_000)
        for _, key, _, at in made
        for start in range(max(0, (at - 10_000) // 5_000 * 5_000 + 5_000), at + 1, 5_000)
    )
    for step in range(5):
        here.feed(made[step * 1_000 : (step + 1) * 1_000])
        driver = here.run()
        if step in (1, 3):
            driver.claim.operator.compact()
        if step in (2, 3):
            shutil.rmtree(here.application.state)
    here.feed([(0, b"far", b"x", FAR)])
    here.run()
    found = results(broker, here.output)
    assert {row[:3]: row[3] for row in found} == expected
    assert len(found) == len(expected), "a window was told twice"


def test_an_idle_partition_closes_its_windows_once(windowed, broker, monkeypatch):
    here = windowed(idle_after="1s")
    here.feed([(0, b"a", b"x", 1_000)])
    driver = here.run()
    now = SYSTEM_CLOCK.now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: now + 60_000)
    driver = here.driver()
    wait_for(driver.claim.operator.round, "a batch")
    wait_for(lambda: not driver.claim.operator.round(), "nothing is left to do")
    assert results(broker, here.output) == [("a", 0, 10_000, 1, "idle")]
    driver.claim.operator.drain()


def test_merged_sessions_retract_their_emitted_results(windowed, broker):
    here = windowed(window={"session": "5s", "grace": "60s"}, emit="updates")
    here.feed([(0, b"a", b"x", at) for at in (1_000, 9_000, 5_000)])
    here.run()
    assert [row[:4] for row in results(broker, here.output)] == [
        ("a", 1_000, 1_000, 1),
        ("a", 9_000, 9_000, 1),
        ("a", 1_000, 1_000, None),
        ("a", 9_000, 9_000, None),
        ("a", 1_000, 9_000, 3),
    ]


@pytest.mark.spark_reads
def test_a_value_that_is_not_a_number_is_a_row_with_the_reason(windowed, broker):
    here = windowed(aggregate={"sum": {"field": "amount"}, "count": True}, emit="updates")
    here.feed([(0, b"a", value, 1_000) for value in (b'{"amount":2}', b'{"amount":"two"}', b"no", b'{"amount":5}')])
    driver = here.run()
    assert driver.claim.operator.newest.partitions[0].totals.rejected == 2
    assert results(broker, here.output)[-1][3] == {"count": 2, "sum": 7}
    register_views(here.spark, here.application)
    causes = here.spark.sql("SELECT cause FROM updates_rejected ORDER BY offset").toArrow()["cause"].to_pylist()
    assert len(set(causes)) == 2
    assert all(causes)


@pytest.mark.spark_reads
def test_sql_shows_every_window_and_whether_its_value_is_final_at_an_earlier_version_too(windowed):
    here = windowed(key_format="string")
    here.feed([(0, b"a", b"x", 1_000), (0, b"a", b"x", 11_000)])
    before = here.run().claim.operator.newest
    here.feed([(0, b"b", b"x", 20_000)])
    here.run()
    query = "SELECT key, unix_millis(window_start) AS start, value, final FROM updates_windows ORDER BY start"
    register_views(here.spark, here.application)
    rows = [tuple(row) for row in here.spark.sql(query).collect()]
    assert rows == [("a", 0, "1", True), ("a", 10_000, "1", False), ("b", 20_000, "1", False)]
    register_views(here.spark, here.application, version=_version_of(here, before.batch))
    rows = [tuple(row) for row in here.spark.sql(query).collect()]
    assert rows == [("a", 0, "1", False), ("a", 10_000, "1", False)]


def _version_of(here, batch):
    """The version of the log at which the batch is the newest; the table's making is version 0."""
    return batch + 1


def test_windows_are_read_by_key_range_and_time_without_a_service(windowed, tmp_path, capsys):
    here = windowed(window={"tumbling": "10s", "grace": "1h"})
    here.feed([(0, b"a", b"x", 1_000), (0, b"b", b"x", 12_000), (0, b"a", b"x", 25_000), (0, b"a", b"x", 26_000)])
    here.run()
    windows = CommittedWindows(here.log)
    assert [(w.key, w.start, w.value) for w in windows.fetch_all()] == [
        (b"a", 0, b"1"),
        (b"b", 10_000, b"1"),
        (b"a", 20_000, b"2"),
    ]
    assert [w.start for w in windows.fetch(b"a", backward=True)] == [20_000, 0]
    assert [w.start for w in windows.fetch(b"a", from_ms=1, to_ms=20_000)] == [20_000]
    assert [w.key for w in windows.fetch_range(b"b", None)] == [b"b"]
    assert CommittedWindows(here.log, version=1).fetch_all() == []
    file = tmp_path / "app.yaml"
    file.write_text(json.dumps(here.raw))
    main(["windows", str(file), "updates", "--key", "a", "--json"], standalone_mode=False)
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["key"], row["start"], row["end"], row["value"]) for row in shown] == [
        ("a", 0, 10_000, 1),
        ("a", 20_000, 30_000, 2),
    ]


def test_a_log_without_windows_is_refused(world):
    here = world(until={"time_limit": "1s"})
    here.feed([(0, b"a", b"x", 1)])
    here.run()
    with pytest.raises(UserError, match="holds no windows"):
        CommittedWindows(here.log)
