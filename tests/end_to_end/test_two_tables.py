"""A pipeline of two joins over real parts, in a process of its own: one of its tables stops, and then it is killed."""

from __future__ import annotations

from threading import Event

import pytest
import yaml

from tests.kill.harness import PARTITIONS, application_content, committed
from tests.kill.service import Start, in_turn
from tests.lakes import lake_at
from tests.patience import wait_for
from tidegate.contracts.records import Row
from tidegate.devkit.produce_consume import write_all
from tidegate.operators.pipeline.cases import pipeline_reference
from tidegate.operators.testing.laws import Table
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import load
from tidegate.runtime.configuration.changes import held_in
from tidegate.runtime.doctor.status import operator_status
from tidegate.state.delta_log.log_version import LogVersion

pytestmark = [pytest.mark.broker, pytest.mark.spark]

FACTS, PRICES, JOIN = "facts", "prices", "joined"
STEPS = [
    {"name": "described", "kind": "stream_table_join", "table": FACTS, "join": "left", "grace": "1s"},
    {"name": "priced", "kind": "stream_table_join", "table": PRICES, "join": "left", "grace": "1s"},
]
VERSIONS = {
    FACTS: [(b"a", b'"A"', 0), (b"b", b'"B"', 0)],
    PRICES: [(b"a", b"1", 0), (b"b", b"2", 0)],
}
LAST_PRICES = [(b"a", b"3", 1_500), (b"b", b"4", 2_500)]
RECORDS = [(b"a", b"10", 1_000), (b"a", b"11", 2_000), (b"b", b"12", 2_000), (b"b", b"13", 3_000)]
FAR = (b"c", b"14", 1_000_000)


class TwoTables:
    """An application with two tables, whose drivers run in the test, and a pipeline that joins both."""

    def __init__(self, spark, broker, topic, folder, lake):
        self.spark, self.bootstrap, self.file = spark, broker.bootstrap, folder / "both.yaml"
        self.topics = {name: topic(partitions=PARTITIONS) for name in (FACTS, PRICES, "stream", "output")}
        tables = {
            name: {"kind": "table_history", "input": self.topics[name], "history_retention": "1h"}
            for name in (FACTS, PRICES)
        }
        ends = {"input": self.topics["stream"], "output": self.topics["output"]}
        content = application_content("both", self.bootstrap, lake, "./state")
        operators = {**tables, JOIN: {"kind": "pipeline", **ends, "steps": STEPS}}
        self.file.write_text(yaml.safe_dump({**content, "operators": operators}))
        self.application = load(self.file)

    def write(self, name, records):
        """The records (key, value, timestamp) stand in partition 0 of the topic."""
        made = [(0, *record) for record in records]
        assert write_all({"bootstrap.servers": self.bootstrap}, self.topics[name], made) == len(made)

    def run_table(self, name):
        """The table's operator has read all of its topic, and has stopped."""
        driver = OperatorDriver(Wiring(spark=self.spark, application=self.application, name=name))
        driver.run(Event(), until_caught_up=True)

    def waits(self):
        """What each step holds, once all records have come and the pipeline waits for a table."""
        if operator_status(self.application, JOIN)["why"]["rule"] != "waiting for table":
            return {}
        newest = LogVersion.at(lake_at(self.application.lake / JOIN), None).newest()
        return {name: held_in(newest.partitions[0], name) for name in ("described", "priced")}

    def published(self):
        """What is in the topic of results: (key, value, timestamp, cause)."""
        return committed(self.bootstrap, self.topics["output"])[0]

    def expected(self):
        """What the references of the two joins predict."""
        tables = {**VERSIONS, PRICES: VERSIONS[PRICES] + LAST_PRICES}
        known = [Table(self.application.operators[name], rows(tables[name]), name=name) for name in tables]
        trace = pipeline_reference(self.application.operators[JOIN], [*known, *rows([*RECORDS, FAR])], 0)
        return [(row["key"], row["value"], row["timestamp"], row["cause"].encode()) for row in trace.emissions]


def rows(records):
    """The records, each with its offset."""
    return tuple(Row(key, value, timestamp, at) for at, (key, value, timestamp) in enumerate(records))


@pytest.mark.long
def test_two_joins_wait_for_the_table_that_stopped_and_after_a_kill_lose_and_repeat_nothing(
    spark, broker, topic, tmp_path, new_lake
):
    """The stream's time is far ahead: all records pass the first join, and wait in the second one for its prices."""
    here = TwoTables(spark, broker, topic, tmp_path, new_lake(tmp_path / "lake"))
    for name, versions in VERSIONS.items():
        here.write(name, versions)
        here.run_table(name)
    with in_turn([Start(file=here.file, operator=JOIN)] * 2) as services:
        killed = next(services).go()
        here.write(PRICES, LAST_PRICES)  # nobody reads them
        here.write("stream", [*RECORDS, FAR])
        wait_for(lambda: here.waits() == {"described": 1, "priced": 4}, "the second join holds what the first released")
        killed.kill()
        again = next(services).go()
        again.wait_ready()
        wait_for(lambda: here.waits() == {"described": 1, "priced": 4}, "it waits again")
        assert here.published() == []
        here.run_table(PRICES)
        wait_for(lambda: len(here.published()) == len(RECORDS), "all records have met their prices")
        again.drain()
    expected = here.expected()
    assert here.published() == expected
    assert [(key, timestamp) for key, _, timestamp, _ in expected] == [(key, at) for key, _, at in RECORDS]
    assert [b'"prices":%d' % price in value for (_, value, _, _), price in zip(expected, (1, 3, 2, 4), strict=True)]
