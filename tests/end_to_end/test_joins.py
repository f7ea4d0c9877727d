"""A stream joined with the history of a table: two services over real parts, on good days and bad ones.

Keys are k0 to k3, each in the partition of its number. The stream's values tell which version they should meet.
"""

from __future__ import annotations

import json
import shutil
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.lakes import delta_table, named
from tests.patience import PATIENCE_S, wait_for
from tidegate.contracts.batch_metadata import Pin
from tidegate.contracts.clock import SYSTEM_CLOCK, SystemClock
from tidegate.contracts.errors import ConfigurationError, StateError, UserError
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import application_of
from tidegate.runtime.doctor.diagnosis import diagnose
from tidegate.runtime.doctor.status import operator_status
from tidegate.testing.replay import Replay

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS, TABLE, JOIN = 4, "facts", "joined"
FAR_MS = 1_000_000


class JoinedWorld:
    """An application with a table and a join, whose drivers run in the test."""

    def __init__(self, spark, broker, topic, folder, lake, **join):
        self.spark, self.bootstrap = spark, broker.bootstrap
        self.topics = {name: topic(partitions=PARTITIONS) for name in ("stream", "table", "more", "output")}
        self.joining = {"table": TABLE, "join": "left", **join}
        self.keeping = {"history_retention": "1h"}
        self.folder, self.lake = folder, lake

    @property
    def application(self):
        """As it is configured now."""
        table = {"kind": "table_history", "input": self.topics["table"], **self.keeping}
        ends = {"input": self.topics["stream"], "output": self.topics["output"]}
        return application_of(
            {
                "application": "test",
                **named(self.lake),
                "state": str(self.folder / "state"),
                "keep_output": "forever",
                "kafka": {"bootstrap.servers": self.bootstrap},
                "trigger": "0",
                "operators": {TABLE: table, JOIN: {"kind": "stream_table_join", **ends, **self.joining}},
            }
        )

    def driver(self, name):
        """A driver of one of the two."""
        return OperatorDriver(Wiring(spark=self.spark, application=self.application, name=name))

    def run(self, name):
        """Everything in the operator's input is processed and published."""
        driver = self.driver(name)
        driver.run(Event(), until_caught_up=True)
        return driver

    def put(self, *records):
        """Versions (key's number, value, timestamp), and the table's service has them."""
        self.write("table", *records)
        return self.run(TABLE)

    def write(self, name, *records):
        """Records (key's number, value, timestamp) stand in a topic."""
        made = [(key, b"k%d" % key, value, timestamp) for key, value, timestamp in records]
        assert write_all({"bootstrap.servers": self.bootstrap}, self.topics[name], made) == len(made)

    def send(self, *records):
        """Records of the stream, and the join's service has worked on them."""
        self.write("stream", *records)
        return self.run(JOIN)

    def far_ahead(self):
        """A record for each partition, so late that nothing before it is held any more."""
        return self.send(*[(key, b'"far"', FAR_MS) for key in range(PARTITIONS)])

    def seen(self):
        """What any consumer reads of the output: (key, stream value, table value, status), ordered by key."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "outside",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found = []
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(self.topics["output"], partition, 0)])
            while (message := consumer.poll(10)) is not None and message.error() is None:
                value, headers = json.loads(message.value()), dict(message.headers())
                status = headers["tidegate-cause"].decode()
                found.append((message.key().decode(), value["stream"], value["table"], status))
        consumer.close()
        return found

    def check_replay(self):
        """Every batch of the join, computed again from its metadata, gives the same rows."""
        batches = list(Replay(application=self.application, name=JOIN).batches())
        assert batches
        assert all(batch.agrees for batch in batches)


@pytest.fixture
def joined(spark, broker, topic, tmp_path, new_lake):
    """`joined(grace="5s")`: a world with topics of its own."""
    return lambda **join: JoinedWorld(spark, broker, topic, tmp_path, new_lake(tmp_path / "lake"), **join)


def test_a_record_is_joined_with_the_version_that_was_valid_at_its_time(joined):
    """table of k0: A from 1 000, B from 2 000 --- stream: 1 500, 2 500, 500; k1 has a tombstone from 2 000"""
    here = joined(grace="5s")
    here.put((0, b'"A"', 1_000), (0, b'"B"', 2_000), (1, b'"C"', 1_000), (1, None, 2_000))
    here.send((0, b"1", 1_500), (0, b"2", 2_500), (0, b"3", 500), (1, b"4", 1_999), (1, b"5", 2_000))
    assert here.seen() == []
    here.far_ahead()
    assert here.seen() == [
        ("k0", 3, None, "unmatched"),
        ("k0", 1, "A", "matched"),
        ("k0", 2, "B", "matched"),
        ("k1", 4, "C", "matched"),
        ("k1", 5, None, "unmatched"),
    ]
    here.check_replay()


def test_a_version_that_arrives_within_the_grace_is_joined(joined):
    here = joined(grace="5s")
    here.put((0, b'"old"', 1_000))
    here.send((0, b"1", 3_000))
    here.put((0, b'"new"', 2_000))
    here.far_ahead()
    assert here.seen() == [("k0", 1, "new", "matched")]
    here.check_replay()


def test_without_grace_a_record_is_joined_with_the_version_that_has_arrived(joined):
    here = joined(join="inner")
    here.put((0, b'"old"', 1_000))
    here.send((0, b"1", 3_000), (1, b"2", 3_000))
    here.put((0, b'"new"', 2_000))
    here.send((0, b"3", 3_000), (0, b"4", 1_500))
    assert here.seen() == [("k0", 1, "old", "matched"), ("k0", 3, "new", "matched"), ("k0", 4, "old", "matched")]
    here.check_replay()


def test_a_table_of_latest_values_ignores_timestamps(joined):
    here = joined()
    here.keeping = {"versions": "latest"}
    here.put((0, b'"A"', 5_000), (0, b'"B"', 1_000))
    here.send((0, b"1", 0))
    here.put((0, None, 3))
    here.send((0, b"2", 9_000))
    assert here.seen() == [("k0", 1, "B", "matched"), ("k0", 2, None, "unmatched")]
    here.check_replay()


def test_late_records_are_joined_at_once_and_bad_ones_become_rows(joined):
    here = joined(grace="1s")
    here.put((0, b'"A"', 0))
    driver = here.send((0, b"1", 9_000), (0, b"2", 7_999), (0, None, 9_500))
    assert here.seen() == [("k0", 2, "A", "late")]
    total = driver.claim.operator.newest.partitions[0].totals
    assert (total.records_in, total.applied, total.rejected, total.held) == (3, 2, 1, 1)
    here.check_replay()


def test_each_commit_records_the_version_of_the_table_that_it_has_read(joined):
    here = joined()
    here.put((0, b'"A"', 0))
    first = here.send((0, b"1", 1))
    assert first.claim.operator.newest.inputs == {TABLE: Pin(_version(here), _table_id(here))}
    here.put((0, b'"B"', 5))
    second = here.send((0, b"2", 6))
    before, after = (driver.claim.operator.newest.inputs[TABLE].version for driver in (first, second))
    assert after == _version(here) > before


def _version(here):
    return delta_table(here.lake / TABLE).version()


def _table_id(here):
    return str(delta_table(here.lake / TABLE).metadata().id)


def test_a_join_without_grace_continues_while_the_table_s_service_is_down_and_status_shows_the_table_s_lag(joined):
    here = joined()
    here.put((0, b'"A"', 1_000))
    here.write("table", (0, b'"B"', 1_500))  # nobody reads it yet
    here.send((0, b"1", 2_000))
    here.far_ahead()
    assert here.seen()[0] == ("k0", 1, "A", "matched")
    [table] = operator_status(here.application, JOIN)["tables"]
    assert (table["name"], table["behind_ms"][0]) == (TABLE, FAR_MS - 1_000)
    assert operator_status(here.application, TABLE)["tables"] == []


@pytest.mark.parametrize("unread", ["table", "more"])
def test_a_join_with_a_grace_waits_until_the_table_has_read_each_topic_and_status_says_so(joined, unread):
    here = joined(grace="1s")
    here.keeping["input"] = [here.topics["table"], here.topics["more"]]
    here.put((0, b'"A"', 1_000))
    here.send((0, b"1", 2_000))
    here.write(unread, (0, b'"B"', 1_500))  # nobody reads it yet
    here.write("stream", *[(key, b'"far"', FAR_MS) for key in range(PARTITIONS)])
    join = here.driver(JOIN)
    thread = Thread(target=join.run, args=(Event(),), kwargs={"until_caught_up": True})
    thread.start()
    wait_for(lambda: operator_status(here.application, JOIN)["why"]["rule"] == "waiting for table")
    assert (thread.is_alive(), here.seen()) == (True, [])
    assert "due records wait for their table" in [found.problem for found in diagnose(here.application)]
    here.run(TABLE)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert here.seen() == [("k0", 1, "B", "matched")]
    here.check_replay()


def test_versions_and_tombstones_of_several_topics_are_one_history(joined):
    """table of k0: A from 1 000, a tombstone from 3 000; in another topic B from 2 000, C from 4 000"""
    here = joined(grace="5s")
    here.keeping["input"] = [here.topics["table"], here.topics["more"]]
    here.write("more", (0, b'"B"', 2_000), (0, b'"C"', 4_000))
    here.put((0, b'"A"', 1_000), (0, None, 3_000))
    here.send(*((0, b"%d" % number, 500 + 1_000 * number) for number in range(5)))
    here.far_ahead()
    assert [table for _, _, table, _ in here.seen()] == [None, "A", "B", None, "C"]
    here.check_replay()
    assert all(batch.agrees for batch in Replay(application=here.application, name=TABLE).batches())


def test_wait_for_table_limits_the_wait_by_the_clock(joined):
    here = joined(grace="1s", wait_for_table="2s")
    here.put((0, b'"A"', 1_000))
    here.send((0, b"1", 2_000))
    here.write("table", (0, b'"B"', 1_500))  # nobody reads it
    here.far_ahead()
    assert here.seen() == [("k0", 1, "A", "matched")]
    here.check_replay()


def test_a_table_that_is_far_ahead_keeps_what_its_join_has_yet_to_look_up(joined):
    """table: 40 versions of k0, 100 s apart, kept for 5 s --- the join's stream comes after all of them"""
    here = joined(grace="1s")
    here.keeping = {"history_retention": "5s"}
    here.put((0, b"0", 0))
    here.send((0, b'"first"', 1))
    here.put(*[(0, b"%d" % number, 100_000 * number) for number in range(1, 40)])
    here.send(*[(0, b"%d" % number, 100_000 * number + 7) for number in range(1, 40)])
    here.send((0, b'"far"', 4_000_000))
    assert [row[1:] for row in here.seen()] == [("first", 0, "matched"), *((n, n, "matched") for n in range(1, 40))]
    assert 3_899_007 <= here.put((0, b"40", 4_000_000)).claim.operator.newest.partitions[0].floor <= 3_995_000
    here.check_replay()


def test_a_join_that_begins_before_the_table_s_history_stops_unless_configured_to_join(joined):
    here = joined()
    here.keeping = {"history_retention": "1s"}
    here.put((0, b'"A"', 1_000), (0, b'"B"', 2_000), (0, b'"C"', 9_000))
    with pytest.raises(UserError, match="before the history of its table"):
        here.send((0, b"1", 1_500))
    here.joining["before_history"] = "join"
    here.run(JOIN)
    assert here.seen() == [("k0", 1, None, "expired")]


@pytest.mark.folder_lake
def test_a_join_that_starts_before_its_table_waits_for_it(joined):
    here = joined()
    here.write("stream", (0, b"1", 2_000))
    here.put((0, b'"A"', 1_000))
    table, away = here.folder / "lake" / TABLE, here.folder / "away"
    table.rename(away)
    join = here.driver(JOIN)
    thread = Thread(target=join.run, args=(Event(),), kwargs={"until_caught_up": True})
    thread.start()
    thread.join(3)
    assert thread.is_alive()
    away.rename(table)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert here.seen() == [("k0", 1, "A", "matched")]


def test_a_join_catches_up_across_a_compaction_of_its_table_without_missing_deletes(joined):
    here = joined()
    here.keeping = {"history_retention": "1s"}
    here.put((0, b'"A"', 1_000), (1, b'"X"', 1_000))
    here.send((0, b"1", 1_500), (0, b"2", 9_500))
    here.run(JOIN)  # its first lease says what it needs since then
    here.put((0, b'"B"', 2_000), (0, b'"C"', 9_000)).claim.operator.compact()  # A is gone, and so is what told of it
    here.put((0, b'"D"', 9_500))
    here.send((0, b"3", 1_500), (0, b"4", 8_500), (0, b"5", 9_500))
    assert [row[2:] for row in here.seen()] == [
        ("A", "matched"),
        ("A", "matched"),
        (None, "expired"),
        ("B", "matched"),
        ("D", "matched"),
    ]
    shutil.rmtree(here.folder / "state")
    here.send((0, b"6", 8_500))
    assert here.seen()[-1] == ("k0", 6, "B", "matched")
    here.check_replay()


def test_a_record_waits_until_the_table_has_read_on_within_the_limit(joined, monkeypatch):
    """stream: 1 at 3 000 --- the table has B and C to read, then has read them: 1 goes --- 2 waits an hour at most"""
    here = joined(grace="1s", wait_for_table="1h")
    here.put((0, b'"A"', 1_000))
    here.write("table", (0, b'"B"', 2_000), (0, b'"C"', 4_000))
    here.write("stream", (0, b"1", 3_000), (0, b"2", 50_000))
    join = here.driver(JOIN).start()
    wait_for(join.round, "a batch")
    assert here.seen() == []
    here.run(TABLE)
    wait_for(join.round, "a batch")
    assert here.seen() == [("k0", 1, "B", "matched")]
    here.write("table", (0, b'"D"', 5_000))
    here.write("stream", (0, b"3", 90_000))
    wait_for(join.round, "a batch")
    assert len(here.seen()) == 1
    now = SYSTEM_CLOCK.now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: now + 3_600_001)
    wait_for(join.round, "a batch")
    join.drain()
    assert here.seen()[1:] == [("k0", 2, "C", "matched")]


def test_a_smaller_grace_releases_records_and_a_larger_one_holds_them_longer(joined):
    here = joined(grace="5s")
    here.put((0, b'"A"', 0))
    here.send((0, b"1", 1_000), (0, b"2", 4_000))
    here.joining["grace"] = "2s"
    here.send((1, b"9", 0), (0, b"3", 4_000))
    assert [row[1] for row in here.seen()] == [1]
    here.joining["grace"] = "20s"
    here.send((0, b"4", 10_000))
    assert [row[1] for row in here.seen()] == [1]
    here.far_ahead()
    assert [row[1] for row in here.seen() if row[0] == "k0"] == [1, 2, 3, 4]


def test_a_key_of_a_hundred_thousand_versions_is_read_as_of_any_time(joined):
    here = joined()
    here.put(*[(0, b"%d" % version, version * 10) for version in range(100_000)])
    here.send(*[(0, b"%d" % at, at) for at in (0, 9, 10, 123_456, 999_999)])
    assert [row[2] for row in here.seen()] == [0, 0, 1, 12_345, 99_999]


def test_a_table_with_a_different_number_of_partitions_is_refused(joined, topic):
    here = joined()
    here.topics["table"] = topic(partitions=1)
    here.run(TABLE)
    with pytest.raises(UserError, match="different numbers of partitions") as refused:
        here.run(JOIN)
    assert "same number of partitions" in refused.value.remedy


def test_a_table_that_another_program_changed_stops_the_join(joined):
    here = joined()
    here.put((0, b'"A"', 0))
    here.send((0, b"1", 1))
    delta_table(here.lake / TABLE).delete("kind = 'state'")
    with pytest.raises(StateError, match="another program changed data"):
        here.send((0, b"2", 2))


@pytest.mark.parametrize(
    ("join", "table", "cause"),
    [
        ({"grace": "1h"}, {"history_retention": "1h"}, "not greater than grace"),
        ({"grace": "1s"}, {"versions": "latest"}, "latest values"),
        ({"table": "nothing"}, {}, "not a table of this file"),
        ({"joiner": "json:dumps"}, {}, "does not allow"),
    ],
)
def test_an_unusable_option_is_refused_when_the_file_is_read(joined, join, table, cause):
    here = joined(**join)
    here.keeping = table or here.keeping
    with pytest.raises(ConfigurationError, match=cause):
        _ = here.application
