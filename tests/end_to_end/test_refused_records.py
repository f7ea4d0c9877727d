"""Late and rejected records of every kind of operator: their views in SQL, and their dead letters in Kafka."""

from __future__ import annotations

import json
from threading import Event

import pytest
import yaml
from click.testing import CliRunner

from tests.lakes import named
from tests.runtime.kafka.peers import read, write
from tidegate.cli.main import main
from tidegate.contracts.errors import UserError
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_batch import decode_headers, encode_headers
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import application_of
from tidegate.spark import register_views

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS, SECOND_MS = 2, 1_000
START_MS = 1_700_000_000_000
OWN = encode_headers([(b"trace", b"7"), (b"none", None)])

SUPPRESSION = {"kind": "suppression", "until": {"time_limit": "1h"}, "max_lateness": "10s"}
HISTORY = {"kind": "table_history", "history_retention": "10s"}
WINDOWS = {
    "kind": "windowed_aggregation",
    "window": {"tumbling": "1s", "grace": "9s"},
    "aggregate": {"count": True},
    "emit": "final",
}
ELEMENTS = WINDOWS | {"evictor": {"count": 3}}
JOIN = {"kind": "stream_table_join", "table": "facts", "join": "inner", "grace": "0s"}


class Refusing:
    """An application with one operator and a topic of dead letters (and a table, if it is a join)."""

    def __init__(self, spark, broker, topic, folder, lake, operator, **changed):
        self.spark, self.bootstrap, self.folder, self.lake = spark, broker.bootstrap, folder, lake
        self.topics = {name: topic(partitions=PARTITIONS) for name in ("input", "dead_letters")}
        self.operator = operator | self.topics | changed
        self.table = topic(partitions=PARTITIONS)

    @property
    def configuration(self):
        """As it is now."""
        operators = {"op": self.operator}
        if "table" in self.operator:
            operators["facts"] = HISTORY | {"input": self.table, "history_retention": "1h"}
        return {
            "application": "refusing",
            **named(self.lake),
            "state": str(self.folder / "state"),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": self.bootstrap},
            "trigger": "0",
            "operators": operators,
        }

    @property
    def application(self):
        """As it is configured now."""
        return application_of(self.configuration)

    def run(self):
        """Everything in the input is processed and published."""
        for name in reversed(self.application.operators):
            OperatorDriver(Wiring(spark=self.spark, application=self.application, name=name)).run(
                Event(), until_caught_up=True
            )

    def feed(self, *rows, partition=1):
        """The rows stand in a partition of the input."""
        write(self.bootstrap, self.operator["input"], rows, partition=partition)

    def letters(self, partition=1):
        """The dead letters of a partition."""
        return read(self.bootstrap, self.operator["dead_letters"], partition=partition)

    def sql(self, query):
        """The rows of a query over the operator's views."""
        register_views(self.spark, self.application)
        return self.spark.sql(query).collect()


@pytest.fixture
def refusing(spark, broker, topic, tmp_path, new_lake):
    """`refusing(operator)`: a world for it."""
    lake = new_lake(tmp_path / "lake")
    return lambda operator, **changed: Refusing(spark, broker, topic, tmp_path, lake, operator, **changed)


def at(seconds, value=b"v", key=b"k", headers=OWN):
    return Row(key, value, START_MS + seconds * SECOND_MS, 0, headers)


def own_and_added(row):
    """The headers of a dead letter: the record's own, and what was added to them."""
    headers = decode_headers(row.headers)
    added = {name.decode(): value.decode() for name, value in headers[2:]}
    return encode_headers(headers[:2]), added


@pytest.mark.parametrize(
    ("operator", "cause", "bound_s"),
    [
        (SUPPRESSION, "older than max_lateness", 90),
        (HISTORY, "older than history_retention", 90),
        (WINDOWS, "its windows are closed", 91),
        (ELEMENTS, "its windows are closed", 91),
    ],
    ids=["suppression", "table_history", "windows", "elements"],
)
@pytest.mark.spark_reads
def test_late_and_rejected_records_are_dead_letters_and_rows_of_views(refusing, operator, cause, bound_s):
    #  100 s: T --- 80 s: late by 20 s, the bound is 90 s, with windows of 1 s the next one's start --- no key: rejected
    here = refusing(operator)
    late, rejected = at(80, b"late"), at(101, b"no key", key=None)
    here.feed(at(100), late, rejected, at(102, b"fine"))
    here.run()

    letters = here.letters()
    assert [row[:3] for row in letters] == [late[:3], rejected[:3]]
    assert [own_and_added(row)[0] for row in letters] == [OWN, OWN]
    added = [own_and_added(row)[1] for row in letters]
    assert [one["__streams.errors.message"] for one in added] == [f"late: {cause}", "rejected: null key"]
    assert [one["__streams.errors.offset"] for one in added] == ["1", "2"]
    assert [(one["__streams.errors.topic"], one["__streams.errors.partition"]) for one in added] == [
        (here.operator["input"], "1")
    ] * 2
    assert {one["tidegate-operator"] for one in added} == {"op"}

    [shown] = here.sql("SELECT *, unix_millis(event_time) AS at, unix_millis(bound_time) AS missed FROM op_late")
    assert (bytes(shown.value), shown.cause, shown.lateness, shown.offset) == (b"late", cause, 20 * SECOND_MS, 1)
    assert shown.at == shown.timestamp == late.timestamp
    assert shown.missed == shown.bound == START_MS + bound_s * SECOND_MS
    [shown] = here.sql("SELECT cause, unix_millis(event_time) AS at, bound_time FROM op_rejected")
    assert tuple(shown) == ("null key", rejected.timestamp, None)
    counts = here.sql("SELECT kind, cause, records, max_lateness FROM op_late_and_rejected_counts ORDER BY kind")
    assert [tuple(row) for row in counts] == [
        ("late", cause, 1, 20 * SECOND_MS),
        ("rejected", "null key", 1, None),
    ]


def test_a_join_s_dead_letters_are_its_rejected_records(refusing, topic):
    here = refusing(JOIN, output=topic(partitions=PARTITIONS))
    here.feed(at(100, key=None), at(101, value=None))
    here.run()
    messages = [own_and_added(row)[1]["__streams.errors.message"] for row in here.letters()]
    assert messages == ["rejected: null key", "rejected: null value"]


@pytest.mark.spark_reads
def test_dead_letters_with_times_in_values_have_no_invalid_timestamp(refusing):
    #  nonsense as time, a time that no topic takes, one before all times: the operator goes on
    here = refusing(SUPPRESSION, timestamp={"field": "at"}, max_ahead="1h")
    values = [{"at": START_MS}, {"at": "soon"}, {"at": 2**61}, {"at": -5}, {"at": START_MS - 20 * SECOND_MS}]
    here.feed(*(at(0, json.dumps(value).encode()) for value in values))
    here.run()
    letters = here.letters()
    assert [json.loads(row.value) for row in letters] == values[1:]
    assert [row.timestamp for row in letters] == [START_MS, -1, -1, START_MS - 20 * SECOND_MS]
    shown = here.sql("SELECT timestamp, year(event_time) FROM op_rejected ORDER BY offset")
    assert [tuple(row) for row in shown] == [(START_MS, 2023), (2**61, None), (-5, 1969)]
    assert len(here.sql("SELECT * FROM op_refused_counts")) == 4


@pytest.mark.spark_reads
def test_a_redriven_record_is_sent_back_once_and_processed(refusing, topic):
    #  100 s: T --- 80 s is late by 20 s, and still is; then max_lateness grows to 1 h
    here, elsewhere = refusing(SUPPRESSION), topic(partitions=PARTITIONS)
    here.feed(at(100), at(80, b"late"), at(101, b"no key", key=None))
    here.run()
    file = here.folder / "refusing.yaml"
    file.write_text(yaml.safe_dump(here.configuration))

    def redrive(*options):
        result = CliRunner().invoke(main, ["redrive", str(file), "op", "--json", *options])
        return result.exit_code, json.loads((result.stdout or result.stderr).splitlines()[-1])

    code, told = redrive("--kind", "late", "--dry-run", "--key", "k", "--since", "2023-11-14T22:14:40")
    assert (code, told["to_send"], told["sent"]) == (0, 1, 0)
    here.operator["max_lateness"] = "1h"
    assert redrive("--kind", "late")[1]["sent"] == 1
    here.run()
    [row] = here.sql("SELECT timestamp, headers FROM op_buffer")[:1]
    assert row.timestamp == START_MS + 80 * SECOND_MS
    assert decode_headers(bytes(row.headers))[2:] == [(b"tidegate-redriven", b"op/1/1")]

    code, told = redrive("--kind", "late")
    assert (code, told["error"]["problem"]) == (2, "all selected records were sent back before")
    code, told = redrive("--to", elsewhere)
    assert (code, told["sent"]) == (0, 1)
    assert [row[:3] for row in read(here.bootstrap, elsewhere, partition=1)] == [at(101, b"no key", key=None)[:3]]
    assert redrive("--to", elsewhere, "--again")[1]["sent"] == 2
    assert len(read(here.bootstrap, elsewhere, partition=1)) == 3


def test_the_topic_of_dead_letters_needs_as_many_partitions_as_the_input(refusing, topic):
    here = refusing(SUPPRESSION, dead_letters=topic(partitions=1))
    with pytest.raises(UserError, match="dead-letters topic has fewer partitions"):
        here.run()


@pytest.mark.spark_reads
def test_dead_letters_are_written_only_while_they_are_configured(refusing):
    here = refusing(SUPPRESSION)
    dead_letters = here.operator.pop("dead_letters")
    here.feed(at(100), at(1, b"before"))
    here.run()
    here.operator["dead_letters"] = dead_letters
    here.feed(at(2, b"while"))
    here.run()
    del here.operator["dead_letters"]
    here.feed(at(3, b"after"))
    here.run()
    here.operator["dead_letters"] = dead_letters
    assert [row.value for row in here.letters()] == [b"while"]
    assert [row.records for row in here.sql("SELECT records FROM op_late_and_rejected_counts")] == [3]
