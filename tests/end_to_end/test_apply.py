"""`tidegate plan` and `tidegate apply`: a running operator goes on under a changed file, with records in flight.

Everything is in one partition. What left is compared with the operator's reference, which sees the same change.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from threading import Event, Thread

import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable

from tests.laws.cases import (
    stream_table_join_reference,
    suppression_reference,
    table_history_reference,
    windows_reference,
)
from tidegate.cli.main import main
from tidegate.contracts.records import Row
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.runtime.application import load
from tidegate.runtime.driver import OperatorDriver, Wiring
from tidegate.runtime.kafka.records_io import write_all
from tidegate.testing.laws import Change, Table

pytestmark = [pytest.mark.broker, pytest.mark.spark]

NAME, TABLE, VERSIONS = "changing", "facts", [(b"k0", b'"A"', 0), (b"k1", b'"B"', 3_000)]
COUNT = {"window": {"tumbling": "2s", "grace": "1h"}, "aggregate": {"count": True}, "emit": "final"}
CASES = {
    "time limit": ("suppression", {"until": {"time_limit": "1h"}}, {"until": {"time_limit": "2s"}}),
    "a bound": (
        "suppression",
        {"until": {"time_limit": "1h"}, "buffer": {"max_keys": 9, "when_full": "emit"}},
        {"until": {"time_limit": "1h"}, "buffer": {"max_keys": 2, "when_full": "emit"}},
    ),
    "what is done when full": (
        "suppression",
        {"until": {"time_limit": "1h"}, "buffer": {"max_keys": 9, "when_full": "shut_down"}},
        {"until": {"time_limit": "3s"}, "buffer": {"max_keys": 9, "when_full": "spill"}},
    ),
    "the timer": (
        "suppression",
        {"until": {"time_limit": "5s"}},
        {"until": {"time_limit": "4s"}, "timer": "last_update"},
    ),
    "lateness": ("suppression", {"until": {"time_limit": "1h"}}, {"until": {"time_limit": "1h"}, "max_lateness": "1s"}),
    "retention": ("table_history", {"history_retention": "1h"}, {"history_retention": "1s"}),
    "a join's grace": (
        "stream_table_join",
        {"table": TABLE, "join": "left", "grace": "1m"},
        {"table": TABLE, "join": "left", "grace": "2s"},
    ),
    "a window's grace": (
        "windowed_aggregation",
        COUNT,
        COUNT | {"window": {"tumbling": "2s", "grace": "1s"}},
    ),
    "a longer grace of windows that are kept": (
        "windowed_aggregation",
        COUNT | {"window": {"tumbling": "2s", "grace": "1s"}, "retention": "2h"},
        COUNT | {"window": {"tumbling": "2s", "grace": "1h"}, "retention": "2h"},
    ),
    "retention of windows": ("windowed_aggregation", COUNT | {"retention": "3h"}, COUNT | {"retention": "2h"}),
    "a window's bound": (
        "windowed_aggregation",
        COUNT | {"buffer": {"max_keys": 90, "when_full": "shut_down"}},
        COUNT | {"buffer": {"max_keys": 3, "when_full": "spill"}},
    ),
}
REFERENCES = {
    "suppression": suppression_reference,
    "table_history": table_history_reference,
    "windowed_aggregation": windows_reference,
}
BEFORE = [(b"k%d" % (n % 5), b'"%d"' % n, n * 700 - 900 * (n % 3 == 2)) for n in range(12)]
AFTER = [(b"k%d" % (n % 7), b'"%d"' % n, 8_000 + n * 900 - 2_500 * (n % 4 == 3)) for n in range(14)]


class Changing:
    """An application in a file, with one operator that is going to change, and a table."""

    def __init__(self, spark, broker, topic, folder, kind):
        self.spark, self.kafka, self.kind = spark, {"bootstrap.servers": broker.bootstrap}, kind
        self.topics = {name: topic(partitions=1) for name in ("input", "output", "other", "facts")}
        self.folder, self.file, self._sent = folder, folder / "application.yaml", 0

    def configure(self, options):
        """The file says that."""
        ends = {"input": self.topics["input"]}
        if self.kind != "table_history":
            ends["output"] = self.topics["output"]
        operators = {NAME: {"kind": self.kind, **ends, **options}}
        if self.kind == "stream_table_join":
            operators[TABLE] = {"kind": "table_history", "input": self.topics["facts"], "history_retention": "1h"}
        raw = {"application": "changing", "lake": str(self.folder / "lake"), "state": str(self.folder / "state")}
        raw |= {"keep_output": "forever", "kafka": self.kafka, "trigger": "0", "control": None, "operators": operators}
        self.file.write_text(yaml.safe_dump(raw))
        return load(self.file).operators[NAME]

    def fill_table(self):
        """The table has its versions."""
        write_all(self.kafka, self.topics["facts"], [(0, *version) for version in VERSIONS])
        self.driver(TABLE).run(Event(), until_caught_up=True)

    def feed(self, records):
        """They stand in the input; given as the operator will see them."""
        write_all(self.kafka, self.topics["input"], [(0, *record) for record in records])
        rows = [Row(*record, self._sent + at) for at, record in enumerate(records)]
        self._sent += len(rows)
        return rows

    def driver(self, name=NAME):
        """A driver under what the file says now."""
        return OperatorDriver(Wiring(spark=self.spark, application=load(self.file), name=name))

    def catch_up(self):
        """Everything fed is processed by a driver of its own."""
        self.driver().run(Event(), until_caught_up=True)

    @contextmanager
    def running(self):
        """A driver works in the background."""
        driver, stop, ready = self.driver(), Event(), Event()
        thread = Thread(target=driver.run, args=(stop,), kwargs={"ready": ready.set})
        thread.start()
        try:
            assert ready.wait(60)
            yield driver
        finally:
            stop.set()
            thread.join(60)

    def call(self, command, code=0):
        """What the command says of the operator."""
        ran = CliRunner().invoke(main, [command, str(self.file), "--operator", NAME, "--json"], catch_exceptions=False)
        assert ran.exit_code == code, ran.output
        return json.loads(ran.stdout)

    def emitted(self):
        """(key, value, timestamp, cause) of what left, in order."""
        rows = DeltaTable(str(self.folder / "lake" / NAME)).to_pyarrow_table(filters=[("kind", "=", "emission")])
        rows = rows.sort_by([("batch", "ascending"), ("seq", "ascending")]).to_pylist()
        return [(row["key"], row["value"], row["timestamp"], row["cause"]) for row in rows]


@pytest.fixture
def changing(spark, broker, topic, tmp_path):
    """`changing(kind)`: an application of one."""
    return lambda kind: Changing(spark, broker, topic, tmp_path, kind)


def foretold(here, config, history):
    """The trace of the reference."""
    if here.kind != "stream_table_join":
        return REFERENCES[here.kind](config, history, 10**15)
    keeping = TableHistoryConfig.model_validate({"input": "facts", "history_retention": "1h"})
    table = Table(keeping, tuple(Row(*version, at) for at, version in enumerate(VERSIONS)))
    return stream_table_join_reference(config, [table, *history], 10**15)


@pytest.mark.parametrize("name", CASES)
def test_a_running_operator_goes_on_under_a_change_as_the_reference_does_and_as_the_plan_said(changing, name):
    kind, before, after = CASES[name]
    here = changing(kind)
    config = here.configure(before)
    if kind == "stream_table_join":
        here.fill_table()
    rows = here.feed(BEFORE)
    here.catch_up()
    with here.running():
        changed = here.configure(after)
        planned = here.call("plan")
        applied = here.call("apply")
    more = here.feed(AFTER)
    here.catch_up()
    assert planned["status"] == "live"
    assert applied["applied_by"] == "the running driver"
    numbers = planned["numbers"]
    assert (applied["released"], applied["held_then"]) == (numbers["released"], numbers["held_then"])
    trace = foretold(here, config, [*rows, Change(changed), *more])
    assert here.emitted() == [(row["key"], row["value"], row["timestamp"], row["cause"]) for row in trace.emissions]
    held_at_once = foretold(here, config, [*rows, Change(changed)])
    assert numbers["released"] == len(held_at_once.emissions) - len(foretold(here, config, rows).emissions)
    if kind != "windowed_aggregation":  # whose closed windows are kept, but not held back
        assert numbers["held_then"] == len(held_at_once.held)


def test_what_the_state_cannot_go_on_under_is_refused_by_plan_apply_and_run(changing):
    here = changing("windowed_aggregation")
    here.configure(COUNT)
    here.feed(BEFORE)
    here.catch_up()
    here.configure(COUNT | {"window": {"tumbling": "3s", "grace": "1h"}, "emit": "on_time"})
    refused = here.call("plan", code=1)
    assert refused["status"] == "refused"
    assert {change["option"] for change in refused["changes"] if change["refused"]} == {"window", "emit"}
    here.call("apply", code=1)
    with pytest.raises(Exception, match="cannot go on under this configuration"):
        here.catch_up()


def test_a_longer_grace_than_closed_windows_are_remembered_for_is_refused(changing):
    here = changing("windowed_aggregation")
    here.configure(COUNT | {"window": {"tumbling": "2s", "grace": "1s"}})
    here.feed(BEFORE)
    here.catch_up()
    here.configure(COUNT | {"window": {"tumbling": "2s", "grace": "2s"}})
    (change,) = here.call("plan", code=1)["changes"]
    assert "would open again" in change["refused"]


def test_without_a_driver_apply_does_it_itself_and_another_output_topic_gets_what_follows(changing):
    here = changing("suppression")
    here.configure({"until": {"time_limit": "1h"}})
    here.feed(BEFORE)
    here.catch_up()
    here.configure({"until": {"time_limit": "1s"}, "output": here.topics["other"], "idle_after": "1h"})
    planned = here.call("plan")
    driver = here.driver()
    driver.start()
    driver.apply()
    assert sum(counts.emitted for counts in driver.newest.counts.values()) == planned["numbers"]["released"] > 0
    assert driver.newest.action == "apply"
    assert here.call("plan")["status"] == "same"


def test_a_new_operator_is_said_to_be_new(changing):
    here = changing("suppression")
    here.configure({"until": {"time_limit": "1h"}, "timer": "last_update"})
    planned = here.call("plan")
    assert planned["status"] == "new"
    assert "for ever" in planned["warnings"][0]
