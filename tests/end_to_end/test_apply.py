"""`tidegate plan` and `tidegate apply`: a running operator goes on under a changed file, with records in flight.

Everything is in one partition. What left is compared with the operator's reference, which sees the same change.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from tests.lakes import delta_table, lake_at, named
from tests.patience import PATIENCE_S, wait_for
from tidegate.cli.driver_client import ask_driver
from tidegate.cli.main import main
from tidegate.cli.operate import apply as apply_command
from tidegate.contracts.errors import EngineError, UserError
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.devkit.bulk_load import write_columns
from tidegate.devkit.produce_consume import consume, write_all
from tidegate.kernels.record_format.record_batch import OutgoingColumns
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.pipeline.cases import pipeline_reference
from tidegate.operators.pipeline.strategies import FILTER
from tidegate.operators.stream_table_join.cases import stream_table_join_reference
from tidegate.operators.suppression.cases import suppression_reference
from tidegate.operators.table_history import TableHistoryConfig
from tidegate.operators.table_history.cases import table_history_reference
from tidegate.operators.testing.laws import Change, Flush, Table
from tidegate.operators.windowed_aggregation.cases import elements_reference, windows_reference
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import load, settings_of
from tidegate.runtime.kafka.client import client
from tidegate.runtime.spark.views import register
from tidegate.state import earlier_batches
from tidegate.state.delta_log.log_version import LogVersion

pytestmark = [pytest.mark.broker, pytest.mark.spark]

JOINERS = "tidegate.operators.testing.joiners"
NAME, TABLE, VERSIONS = "changing", "facts", [(b"k0", b'"A"', 0), (b"k1", b'"B"', 3_000)]
GRACE = {"table": TABLE, "join": "left", "grace": "1m"}
COUNT = {"window": {"tumbling": "2s", "grace": "1h"}, "aggregate": {"count": True}, "emit": "final"}
LAST_TWO = {"aggregate": {"collect": True}, "evictor": {"count": 2}, "emit": "final"}
SLOW = {"name": "slow", "kind": "suppression", "until": {"time_limit": "5s"}}
FIRST = {"name": "first", "kind": "deduplicate", "within": "2s", "grace": "1m"}
COUNTS = {"name": "counts", "kind": "windowed_aggregation", **COUNT, "emit": "updates"}
CLOSED = {"name": "final", "kind": "suppression", "until": "window_close"}
SOONER = {"window": {"tumbling": "2s", "grace": "1s"}}
CASES = {
    "steps of a pipeline": (
        "pipeline",
        {"steps": [FIRST, SLOW, COUNTS, CLOSED]},
        {"steps": [FIRST, SLOW | {"until": {"time_limit": "1s"}}, COUNTS | SOONER, CLOSED]},
    ),
    "a new step of a pipeline": (
        "pipeline",
        {"steps": [SLOW, COUNTS | SOONER]},
        {"steps": [{"filter": FILTER}, SLOW | {"until": {"time_limit": "1s"}}, COUNTS | SOONER, CLOSED]},
    ),
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
    "the grace of final results": (
        "suppression",
        {"until": "window_close", "grace": "1h"},
        {"until": "window_close", "grace": "1s"},
    ),
    "lateness": ("suppression", {"until": {"time_limit": "1h"}}, {"until": {"time_limit": "1h"}, "max_lateness": "1s"}),
    "retention": ("table_history", {"history_retention": "1h"}, {"history_retention": "1s"}),
    "a join's grace": ("stream_table_join", GRACE, GRACE | {"grace": "2s"}),
    "the kind of join": ("stream_table_join", GRACE | {"grace": "2s"}, GRACE | {"join": "inner", "grace": "2s"}),
    "waiting for the table": (
        "stream_table_join",
        GRACE | {"grace": "2s"},
        GRACE | {"grace": "1s", "wait_for_table": "1h"},
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
    "the grace of windows with their elements": (
        "windowed_aggregation",
        LAST_TWO | {"window": {"tumbling": "2s", "grace": "1h"}},
        LAST_TWO | {"window": {"tumbling": "2s", "grace": "1s"}},
    ),
    "retention of windows": ("windowed_aggregation", COUNT | {"retention": "3h"}, COUNT | {"retention": "2h"}),
    "a window's bound": (
        "windowed_aggregation",
        COUNT | {"buffer": {"max_keys": 90, "when_full": "shut_down"}},
        COUNT | {"buffer": {"max_keys": 3, "when_full": "spill"}},
    ),
}
REFERENCES = {
    "pipeline": pipeline_reference,
    "suppression": suppression_reference,
    "table_history": table_history_reference,
    "windowed_aggregation": lambda config, *told: (elements_reference if config.keeps_elements else windows_reference)(
        config, *told
    ),
}
BEFORE = [(b"k%d" % (n % 5), b'"%d"' % n, n * 700 - 900 * (n % 3 == 2)) for n in range(12)]
AFTER = [(b"k%d" % (n % 7), b'"%d"' % n, 8_000 + n * 900 - 2_500 * (n % 4 == 3)) for n in range(14)]


def window_of(timestamp):
    """The headers of a result whose window of 2 s has the timestamp in it."""
    start = timestamp // 2_000 * 2_000
    return encode_headers(
        [(HEADER_WINDOW_START.encode(), b"%d" % start), (HEADER_WINDOW_END.encode(), b"%d" % (start + 2_000))]
    )


class Changing:
    """An application in a file, with one operator that is going to change, and a table."""

    def __init__(self, spark, broker, topic, folder, lake, kind):
        self.spark, self.kafka, self.kind = spark, {"bootstrap.servers": broker.bootstrap}, kind
        self.topics = {name: topic(partitions=1) for name in ("input", "output", "other", "facts")}
        self.folder, self.lake, self.file, self._sent = folder, lake, folder / "application.yaml", 0

    def configure(self, options):
        """The file says that."""
        ends = {"input": self.topics["input"]}
        if self.kind != "table_history":
            ends["output"] = self.topics["output"]
        operators = {NAME: {"kind": self.kind, **ends, **options}}
        if self.kind == "stream_table_join":
            operators[TABLE] = {"kind": "table_history", "input": self.topics["facts"], "history_retention": "1h"}
        raw = {"application": "changing", **named(self.lake), "state": str(self.folder / "state")}
        raw |= {
            "keep_output": "forever",
            "kafka": self.kafka,
            "trigger": "0",
            "control": None,
            "allow": [JOINERS, "nowhere"],
            "operators": operators,
        }
        self.file.write_text(yaml.safe_dump(raw))
        return load(self.file).operators[NAME]

    def fill_table(self):
        """The table has its versions."""
        write_all(self.kafka, self.topics["facts"], [(0, *version) for version in VERSIONS])
        self.driver(TABLE).run(Event(), until_caught_up=True)

    def feed(self, records):
        """They stand in the input, with windows where these are waited for; given as the operator will see them."""
        windowed = getattr(load(self.file).operators[NAME], "until", None) == "window_close"
        rows = [
            Row(*record, self._sent + at, window_of(record[2]) if windowed else b"")
            for at, record in enumerate(records)
        ]
        columns = OutgoingColumns(
            key=pa.array([row.key for row in rows], pa.binary()),
            value=pa.array([row.value for row in rows], pa.binary()),
            headers=pa.array([row.headers for row in rows], pa.binary()),
            timestamp=np.array([row.timestamp for row in rows], np.int64),
        )
        self._sent += write_columns(client(self.kafka), self.topics["input"], 0, columns, 30)
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
            assert ready.wait(PATIENCE_S)
            yield driver
        finally:
            stop.set()
            thread.join(PATIENCE_S)

    def call(self, command, code=0):
        """What the command says of the operator."""
        ran = CliRunner().invoke(main, [command, str(self.file), "--operator", NAME, "--json"], catch_exceptions=False)
        assert ran.exit_code == code, ran.output
        return json.loads(ran.stdout)

    def ask(self, config):
        """The running driver has been asked to go on under that, whatever the command thinks of it."""
        assert ask_driver("apply", load(self.file), NAME, json.dumps(settings_of(config))) is not None

    def apply(self):
        """What `tidegate apply` does where no driver runs: the action, and how many records it released."""
        driver = self.driver()
        driver.start()
        wait_for(driver.claim.operator.apply, "local states are ready")
        newest = driver.claim.operator.newest
        return newest.action, sum(change.counts.emitted for change in newest.changed.values())

    def rows(self, kind, *columns):
        """Those columns of the log's rows of a kind, in order."""
        rows = delta_table(self.lake / NAME).to_pyarrow_table(filters=[("kind", "=", kind)])
        rows = rows.sort_by([("batch", "ascending"), ("seq", "ascending")]).to_pylist()
        return [tuple(row[column] for column in columns) for row in rows]

    def batches(self):
        """The numbers of the log's batches."""
        return [meta.batch for meta in earlier_batches.metas(LogVersion.at(lake_at(self.lake / NAME), None))]

    def emitted(self):
        """(key, value, timestamp, cause) of what left, in order."""
        return self.rows("emission", "key", "value", "timestamp", "cause")

    def published(self, name):
        """The same of what stands in one of the topics."""
        records = consume(self.kafka, self.topics[name])
        return [
            (each.key, each.value, each.timestamp, dict(each.headers)["tidegate-cause"].decode()) for each in records
        ]


@pytest.fixture
def changing(spark, broker, topic, tmp_path, new_lake):
    """`changing(kind)`: an application of one."""
    return lambda kind: Changing(spark, broker, topic, tmp_path, new_lake(tmp_path / "lake"), kind)


def foretold(here, config, history):
    """The trace of the reference."""
    if here.kind != "stream_table_join":
        return REFERENCES[here.kind](config, history, 10**15)
    keeping = TableHistoryConfig.model_validate({"input": "facts", "history_retention": "1h"})
    table = Table(keeping, tuple(Row(*version, at) for at, version in enumerate(VERSIONS)))
    return stream_table_join_reference(config, [table, *history], 10**15)


def visible(trace):
    """(key, value, timestamp, cause) of what left, in order."""
    return [(row["key"], row["value"], row["timestamp"], row["cause"]) for row in trace.emissions]


def changed_in_flight(here, before, after):
    """Records come, what is held goes on under a change, more come: both configurations, both inputs and the plan."""
    config = here.configure(before)
    if here.kind == "stream_table_join":
        here.fill_table()
    rows = here.feed(BEFORE)
    here.catch_up()
    with here.running():
        changed = here.configure(after)
        planned, applied = here.call("plan"), here.call("apply")
    more = here.feed(AFTER)
    here.catch_up()
    assert planned["status"] == "live"
    assert applied["applied_by"] == "the running driver"
    numbers = planned["numbers"]
    assert (applied["released"], applied["held_after"]) == (numbers["released"], numbers["held_after"])
    return config, changed, rows, more, numbers


@pytest.mark.parametrize("name", CASES)
def test_a_running_operator_applies_a_change_as_the_reference_does_and_the_plan_predicted(changing, name):
    kind, before, after = CASES[name]
    here = changing(kind)
    config, changed, rows, more, numbers = changed_in_flight(here, before, after)
    assert here.emitted() == visible(foretold(here, config, [*rows, Change(changed), *more]))
    held_at_once = foretold(here, config, [*rows, Change(changed)])
    assert numbers["released"] == len(held_at_once.emissions) - len(foretold(here, config, rows).emissions)
    if kind == "pipeline":  # of which rows without a step say where the steps stand
        assert numbers["held_after"] == sum(row["step"] is not None for row in held_at_once.held) > 0
    elif kind != "windowed_aggregation":  # whose closed windows are kept, but not held back
        assert numbers["held_after"] == len(held_at_once.held)


def test_a_step_is_removed_when_it_holds_nothing(changing):
    here = changing("pipeline")
    config = here.configure({"steps": [FIRST, SLOW]})
    rows = here.feed(BEFORE)
    here.catch_up()
    changed = here.configure({"steps": [FIRST]})
    [change] = here.call("plan", code=1)["changes"]
    assert (change["option"], change["after"]) == ("steps.slow", None)
    assert "let `tidegate flush` release it" in change["refused"]
    flush(here)
    here.configure({"steps": [FIRST]})
    planned = here.call("plan")
    assert (planned["status"], list(planned["steps"])) == ("live", ["first"])
    more = here.feed(AFTER)
    here.catch_up()
    left = sorted(here.rows("emission", "step", "key", "value", "timestamp", "cause"), key=lambda row: row[0])
    due = pipeline_reference(config, [*rows, Flush(), Change(changed), *more], 10**15)  # in order of the steps
    assert [row[1:] for row in left] == visible(due)


@pytest.mark.spark_reads
def test_views_show_a_new_step_as_empty_where_the_log_is_older_than_it(changing):
    here = changing("pipeline")
    here.configure({"steps": [FIRST]})
    here.feed(BEFORE)
    here.catch_up()
    here.configure({"steps": [FIRST, SLOW]})
    held = "SELECT count(*) FROM changing_slow_buffer"

    def shown(version=None):
        register(here.spark, here.lake / NAME, NAME, load(here.file).operators[NAME], version)
        return here.spark.sql(held).collect()[0][0]

    assert shown() == 0
    before = LogVersion.at(lake_at(here.lake / NAME), None).version
    here.feed(AFTER)
    here.catch_up()
    assert shown() > 0 == shown(before)


def flush(here):
    """`tidegate flush` has released everything under the file as it was."""
    here.configure({"steps": [FIRST, SLOW]})
    driver = here.driver()
    driver.start()
    wait_for(driver.claim.operator.flush, "local states are ready")


def test_a_changed_joiner_computes_all_values_from_then_on(changing):
    here = changing("stream_table_join")
    before = GRACE | {"grace": "2s"}
    config, changed, rows, more, numbers = changed_in_flight(here, before, before | {"joiner": f"{JOINERS}:dashed"})
    left = len(foretold(here, config, rows).emissions)
    with_either = [visible(foretold(here, each, [*rows, *more])) for each in (config, changed)]
    assert here.emitted() == with_either[0][:left] + with_either[1][left:]
    assert numbers["held_after"] == len(foretold(here, config, rows).held) > 0 == numbers["released"]


def test_an_incompatible_change_is_refused_by_plan_apply_and_run(changing):
    here = changing("windowed_aggregation")
    here.configure(COUNT)
    here.feed(BEFORE)
    here.catch_up()
    here.configure(COUNT | {"window": {"tumbling": "3s", "grace": "1h"}, "emit": "on_time"})
    refused = here.call("plan", code=1)
    assert refused["status"] == "refused"
    assert {change["option"] for change in refused["changes"] if change["refused"]} == {"window", "emit"}
    here.call("apply", code=1)
    with pytest.raises(Exception, match="cannot continue with this configuration"):
        here.catch_up()


def test_a_longer_grace_than_closed_windows_are_remembered_for_is_refused(changing):
    here = changing("windowed_aggregation")
    here.configure(COUNT | {"window": {"tumbling": "2s", "grace": "1s"}})
    here.feed(BEFORE)
    here.catch_up()
    here.configure(COUNT | {"window": {"tumbling": "2s", "grace": "2s"}})
    (change,) = here.call("plan", code=1)["changes"]
    assert "would open again" in change["refused"]


def test_without_a_driver_apply_makes_the_change_itself_and_a_new_output_topic_gets_later_results(changing):
    here = changing("suppression")
    before = {"until": {"time_limit": "5s"}}
    here.configure(before)
    here.feed(BEFORE)
    here.catch_up()
    after = {"until": {"time_limit": "1s"}, "output": here.topics["other"], "idle_after": "1h"}
    here.configure(after)
    planned, left = here.call("plan"), here.emitted()
    assert here.apply() == ("apply", planned["numbers"]["released"])
    assert here.call("plan")["status"] == "same"
    here.feed(AFTER)
    here.catch_up()
    assert here.published("output") == left != []
    assert here.published("other") == here.emitted()[len(left) :]
    assert len(here.emitted()) > len(left) + planned["numbers"]["released"] > len(left)


def test_a_changed_max_ahead_takes_effect(changing):
    here, ahead = changing("suppression"), int(time.time() * 1_000) + 1_800_000
    updates = {"until": {"time_limit": "1ms"}}
    here.configure(updates | {"max_ahead": "2h"})
    here.feed([(b"k", b"1", ahead)])
    here.catch_up()
    here.configure(updates | {"max_ahead": "1m"})
    planned = here.call("plan")
    assert (planned["status"], planned["numbers"]["held_after"]) == ("live", 1)
    assert here.apply() == ("apply", 0)
    here.feed([(b"k", b"2", ahead + 1_000), (b"k", b"3", ahead + 2_000)])
    here.catch_up()
    assert here.rows("rejected", "value", "cause") == [(b"2", "too far ahead"), (b"3", "too far ahead")]
    assert here.emitted() == []


def test_an_idle_policy_applied_to_a_running_operator_releases_held_records(changing):
    here = changing("suppression")
    updates = {"until": {"time_limit": "1s"}}
    here.configure(updates)
    here.feed([(b"k", b"1", 5_000)])
    here.catch_up()
    with here.running():
        here.configure(updates | {"idle_after": "1s"})
        planned, applied = here.call("plan"), here.call("apply")
        assert planned["numbers"]["released"] == applied["released"] == 0
        wait_for(here.emitted, "the idle stream's time goes on")
    assert here.emitted() == [(b"k", b"1", 5_000, "idle")]


LACKING = {
    "an output that is not there": ("suppression", {"output": "nowhere"}, "topic nowhere does not exist"),
    "dead letters that are not there": ("suppression", {"dead_letters": "nowhere"}, "topic nowhere does not exist"),
    "a joiner that is not there": ("stream_table_join", {"joiner": "nowhere:glued"}, "No module named 'nowhere'"),
}
ONE_RECORD = {"suppression": {"until": {"time_limit": "1ms"}}, "stream_table_join": {"table": TABLE, "join": "left"}}


@pytest.mark.parametrize("name", LACKING)
def test_a_change_that_lacks_a_topic_or_a_function_is_refused_and_the_driver_continues(changing, name):
    kind, lacking, why = LACKING[name]
    here, options = changing(kind), ONE_RECORD[kind]
    here.configure(options)
    if kind == "stream_table_join":
        here.fill_table()
    here.catch_up()
    with here.running():
        changed = here.configure(options | lacking)
        planned, refused = here.call("plan", code=1), here.call("apply", code=1)
        assert planned == refused
        assert (planned["status"], len(planned["warnings"])) == ("refused", 1)
        assert why in planned["warnings"][0]
        with pytest.raises(UserError, match="refused it: apply") as told:
            here.ask(changed)
        assert why in told.value.value
        here.feed([(b"k0", b"1", 1_000), (b"k0", b"2", 2_000)])
        wait_for(here.emitted, "the driver processes what comes then")
        assert here.call("plan", code=1)["status"] == "refused"
    here.configure(options)
    assert here.call("plan")["status"] == "same"


def test_without_a_driver_a_change_that_lacks_a_topic_is_refused_before_anything_is_claimed(changing):
    here = changing("suppression")
    here.configure(ONE_RECORD["suppression"])
    here.feed(BEFORE)
    here.catch_up()
    before = here.batches()
    here.configure(ONE_RECORD["suppression"] | {"output": "nowhere"})
    assert "does not exist" in here.call("apply", code=1)["warnings"][0]
    assert here.batches() == before
    assert before


def test_no_command_waits_for_a_driver_that_has_ended(changing):
    here = changing("suppression")
    here.configure(ONE_RECORD["suppression"])
    here.catch_up()
    here.configure({"until": {"time_limit": "1h"}})
    with pytest.raises(EngineError, match="does not use the new configuration") as told:
        apply_command._until_applied(load(here.file), NAME)
    assert told.value.value == "its driver has ended"


def test_a_new_operator_is_shown_as_new(changing):
    here = changing("suppression")
    here.configure({"until": {"time_limit": "1h"}, "timer": "last_update"})
    planned = here.call("plan")
    assert planned["status"] == "new"
    assert "for ever" in planned["warnings"][0]
