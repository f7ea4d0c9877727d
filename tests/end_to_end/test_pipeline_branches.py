"""Pipelines with branches over real parts: several topics in one transaction, from one log."""

from __future__ import annotations

import shutil
from threading import Event

import pytest

from tests.end_to_end.test_service import consume
from tests.end_to_end.test_windows import results
from tidegate.runtime.publishing import publication
from tidegate.spark import register_views

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def branched(first_topic):
    """The first record of each key within an hour, to a topic of its own; and the final counts of all records."""
    return [
        {"name": "first", "kind": "deduplicate", "within": "1h", "grace": "10s"},
        {"to": first_topic},
        {
            "name": "per_window",
            "from": "input",
            "kind": "windowed_aggregation",
            "window": {"tumbling": "10s", "grace": "5s"},
            "aggregate": {"count": True},
            "emit": "updates",
        },
        {"name": "final", "kind": "suppression", "until": "window_close"},
    ]


def told(broker, topic):
    """(key, value, timestamp, batch, seq) of each committed record of partition 0."""
    found = []
    for message in consume(broker, topic):
        added = dict(message.headers())
        numbers = (int(added[f"tidegate-{name}"]) for name in ("batch", "seq"))
        found.append((message.key(), message.value(), message.timestamp()[1], *numbers))
    return found


def stopped_before_the_end_of_transactions(here, monkeypatch):
    """The input is processed and committed to the log; the process ends before its transactions do."""
    driver = here.driver()
    with monkeypatch.context() as crash:
        crash.setattr(publication.Publication, "end", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            driver.run(Event(), until_caught_up=True)


@pytest.mark.spark_reads
def test_two_topics_get_their_records_in_one_transaction_through_a_restart(world, broker, topic, monkeypatch):
    """[0, 10 000) closes at 15 000: c at 15 000 is the first of its key, and closes the window with a and b in it."""
    first = topic(partitions=4)
    here = world(kind="pipeline", key="string", steps=branched(first))
    here.feed([(0, b"a", b"x", 1_000), (0, b"b", b"y", 2_000), (0, b"a", b"again", 3_000)])
    here.run()
    early = told(broker, first)
    assert [row[:3] for row in early] == [(b"a", b"x", 1_000), (b"b", b"y", 2_000)]
    assert told(broker, here.output) == []

    here.feed([(0, b"c", b"z", 15_000)])
    stopped_before_the_end_of_transactions(here, monkeypatch)
    assert (told(broker, first), told(broker, here.output)) == (early, [])
    shutil.rmtree(here.application.state)
    newest = here.run().claim.operator.newest
    assert [row[:3] for row in told(broker, first)] == [*(row[:3] for row in early), (b"c", b"z", 15_000)]
    closed = [("a", 0, 10_000, 2, "window_close"), ("b", 0, 10_000, 1, "window_close")]
    assert results(broker, here.output) == closed
    assert len({row[3] for row in [*told(broker, first)[2:], *told(broker, here.output)]}) == 1
    assert {topic: sink.step for topic, sink in newest.sinks.items()} == {first: "first", here.output: "final"}

    here.feed([(0, b"d", b"w", 30_000)])
    here.run()
    assert told(broker, first)[3:][0][:3] == (b"d", b"w", 30_000)
    assert results(broker, here.output) == [*closed, ("c", 10_000, 20_000, 1, "window_close")]

    register_views(here.spark, here.application)
    rows = here.spark.sql("SELECT step, batch, seq FROM updates_log WHERE kind = 'emission'").collect()
    sent = {"first": told(broker, first), "final": told(broker, here.output)}
    assert sorted(map(tuple, rows)) == sorted((step, *row[3:]) for step, made in sent.items() for row in made)
