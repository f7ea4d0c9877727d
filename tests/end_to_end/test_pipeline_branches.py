"""Pipelines with branches over real parts: several topics in one transaction, from one log."""

from __future__ import annotations

import json
import shutil
from threading import Event

import pytest
import yaml
from click.testing import CliRunner

from tests.end_to_end.test_service import consume
from tests.end_to_end.test_windows import results
from tests.runtime.kafka.peers import read
from tidegate.cli.main import main
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


def told_of(broker, topic):
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
    early = told_of(broker, first)
    assert [row[:3] for row in early] == [(b"a", b"x", 1_000), (b"b", b"y", 2_000)]
    assert told_of(broker, here.output) == []

    here.feed([(0, b"c", b"z", 15_000)])
    stopped_before_the_end_of_transactions(here, monkeypatch)
    assert (told_of(broker, first), told_of(broker, here.output)) == (early, [])
    shutil.rmtree(here.application.state)
    newest = here.run().claim.operator.newest
    assert [row[:3] for row in told_of(broker, first)] == [*(row[:3] for row in early), (b"c", b"z", 15_000)]
    closed = [("a", 0, 10_000, 2, "window_close"), ("b", 0, 10_000, 1, "window_close")]
    assert results(broker, here.output) == closed
    assert len({row[3] for row in [*told_of(broker, first)[2:], *told_of(broker, here.output)]}) == 1
    assert {topic: sink.step for topic, sink in newest.sinks.items()} == {first: "first", here.output: "final"}

    here.feed([(0, b"d", b"w", 30_000)])
    here.run()
    assert told_of(broker, first)[3:][0][:3] == (b"d", b"w", 30_000)
    assert results(broker, here.output) == [*closed, ("c", 10_000, 20_000, 1, "window_close")]

    register_views(here.spark, here.application)
    rows = here.spark.sql("SELECT step, batch, seq FROM updates_log WHERE kind = 'emission'").collect()
    sent = {"first": told_of(broker, first), "final": told_of(broker, here.output)}
    shown = here.spark.sql("SELECT DISTINCT step, typeof(value) FROM updates_emissions ORDER BY step").collect()
    assert list(map(tuple, shown)) == [("final", "binary"), ("first", "binary")]
    assert sorted(map(tuple, rows)) == sorted((step, *row[3:]) for step, made in sent.items() for row in made)


def command(here, folder, *arguments):
    """The exit code of a command on the world's file, and what it prints as JSON."""
    file = folder / "branches.yaml"
    file.write_text(yaml.safe_dump(here.raw))
    verb, *rest = arguments
    found = CliRunner().invoke(main, [verb, str(file), *rest, "--json"])
    lines = (found.stdout or found.stderr).splitlines()
    return found.exit_code, json.loads(lines[-1]) if lines else None


def test_commands_see_every_output(world, broker, topic, tmp_path):
    """T is 100 000. The record of 50 000 is late in both branches, that of 97 000 is the first of its key."""
    first, letters = topic(partitions=4), topic(partitions=4)
    here = world(kind="pipeline", key="string", steps=branched(first), dead_letters=letters)
    here.feed([(0, b"a", b"x", 100_000), (0, b"a", b"y", 50_000), (0, b"b", b"z", 97_000)])
    here.run()
    assert command(here, tmp_path, "doctor")[1] == {"healthy": True, "findings": []}
    [partition, *_] = command(here, tmp_path, "status")[1]["updates"]["partitions"]
    counts = ("records_in", "applied", "late", "rejected", "emitted", "lag")
    assert [partition[name] for name in counts] == [3, 2, 1, 0, 2, 0]
    assert command(here, tmp_path, "plan")[1]["status"] == "same"
    code, told = command(here, tmp_path, "rescale", "updates", "--partitions", "5")
    assert (code, told["error"]["problem"]) == (2, "an operator of several steps cannot be rescaled")

    redriven = [command(here, tmp_path, "redrive", "updates")[1] for _ in range(2)]
    assert redriven[0]["sent"] == 1
    assert redriven[1]["error"]["problem"] == "all selected records were sent back before"
    here.run()
    assert [row[:2] for row in read(broker.bootstrap, letters)] == [(b"a", b"y")] * 4
    assert [row[0] for row in told_of(broker, first)] == [b"a", b"b"]


@pytest.mark.spark_reads
def test_a_record_that_is_late_in_two_branches_is_counted_once(world):
    """T is 9 000, so 1 000 is late in both."""
    punctual = {"kind": "suppression", "until": {"time_limit": "1s"}, "max_lateness": "0s"}
    here = world(kind="pipeline", steps=[{"name": "one", **punctual}, {"name": "other", "from": "input", **punctual}])
    here.feed([(0, b"a", b"x", 9_000), (0, b"b", b"y", 1_000)])
    here.run()
    register_views(here.spark, here.application)
    shown = here.spark.sql("SELECT step, offset FROM updates_late ORDER BY step").collect()
    assert list(map(tuple, shown)) == [("one", 1), ("other", 1)]
    [counted] = here.spark.sql("SELECT kind, records FROM updates_late_and_rejected_counts").collect()
    assert tuple(counted) == ("late", 1)


def test_a_topic_can_be_added_to_an_inner_step_while_records_are_held(world, broker, topic, tmp_path):
    """It gets what its step emits from then on; the topics that were there before go on."""
    first, updates = topic(partitions=4), topic(partitions=4)
    here = world(kind="pipeline", key="string", steps=branched(first))
    here.feed([(0, b"a", b"x", 1_000)])
    here.run()
    steps = branched(first)
    here.raw["operators"]["updates"]["steps"] = [*steps[:3], {"to": "missing"}, *steps[3:]]
    assert command(here, tmp_path, "doctor")[1]["findings"][0]["value"] == "missing"
    assert command(here, tmp_path, "plan")[1]["status"] == "refused"
    here.raw["operators"]["updates"]["steps"] = [*steps[:3], {"to": updates}, *steps[3:]]
    here.changed()
    plan = command(here, tmp_path, "plan")[1]
    assert (plan["status"], [change["option"] for change in plan["changes"]]) == ("live", ["steps.to"])
    assert plan["numbers"]["released"] == plan["numbers"]["lost"] == 0
    here.feed([(0, b"a", b"y", 2_000), (0, b"b", b"z", 15_000)])
    newest = here.run().claim.operator.newest
    assert results(broker, updates) == [("a", 0, 10_000, 2, "update"), ("b", 10_000, 20_000, 1, "update")]
    assert [row[0] for row in told_of(broker, first)] == [b"a", b"b"]
    assert results(broker, here.output) == [("a", 0, 10_000, 2, "window_close")]
    since = {topic: sink.since for topic, sink in newest.sinks.items()}
    assert since[first] == since[here.output] < since[updates]


def test_a_step_goes_and_a_branch_comes_while_windows_are_held(world, broker, topic, tmp_path):
    """The removed step must be flushed; the new one holds counts from then on, and [0, 10 000) closes at 15 000."""
    updates = topic(partitions=4)
    counts = [*branched(updates)[2:3], {"to": updates}]
    del counts[0]["from"]
    slow = {"name": "slow", "kind": "suppression", "until": {"time_limit": "1h"}}
    here = world(kind="pipeline", key="string", steps=[*counts, slow])
    here.feed([(0, b"a", b"x", 1_000), (0, b"b", b"y", 2_000)])
    here.run()
    final = branched(updates)[3]
    here.raw["operators"]["updates"]["steps"] = [*counts, {"filter": "count > 1"}, final]
    refused = command(here, tmp_path, "plan")[1]
    assert [change["refused"] for change in refused["changes"] if change["refused"]] == [
        "slow holds 2: let `tidegate flush` release it, and windows expire"
    ]
    here.raw["operators"]["updates"]["steps"] = [*counts, slow]
    assert command(here, tmp_path, "flush", "updates")[0] == 0
    flushed = results(broker, here.output)
    here.raw["operators"]["updates"]["steps"] = [*counts, {"filter": "count > 1"}, final]
    plan = command(here, tmp_path, "plan")[1]
    assert (plan["status"], plan["numbers"]["released"], plan["numbers"]["lost"]) == ("live", 0, 0)
    assert {"steps.slow", "steps.final"} <= {change["option"] for change in plan["changes"]}
    here.changed()
    shutil.rmtree(here.application.state)
    here.feed([(0, b"a", b"z", 3_000), (0, b"c", b"w", 15_000)])
    here.run()
    assert results(broker, updates)[2:] == [("a", 0, 10_000, 2, "update"), ("c", 10_000, 20_000, 1, "update")]
    assert [row[:4] for row in flushed] == [("a", 0, 10_000, 1), ("b", 0, 10_000, 1)]
    assert results(broker, here.output) == [*flushed, ("a", 0, 10_000, 2, "window_close")]
