"""An application around a broker, for tests of the whole path."""

from __future__ import annotations

from threading import Event

import pytest

from tests.lakes import named
from tidegate.devkit.produce_consume import write_all
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import application_of

PARTITIONS = 4


class World:
    """An application with one suppression operator, whose driver runs in the test."""

    def __init__(self, spark, broker, lake, folder, source, output, operator, application="test"):
        self.spark, self.name, self.lake = spark, "updates", lake
        self.source, self.output = source, output
        raw = {
            "application": application,
            **named(lake),
            "state": str(folder / "state"),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": broker.bootstrap},
            "trigger": "0",
            "operators": {self.name: {"kind": "suppression", "input": source, "output": output, **operator}},
        }
        self.raw = raw
        self.application = self._application(raw)
        self.log = lake.folder / self.name if lake.is_local else lake / self.name

    def changed(self, **operator):
        """The same world with another configuration of its operator."""
        raw = {**self.raw, "operators": {self.name: {**self.raw["operators"][self.name], **operator}}}
        self.application = self._application(raw)
        return self

    def _application(self, raw):
        return application_of(raw)

    def feed(self, made):
        """The records (partition, key, value, timestamp) stand in the input."""
        assert write_all(self.raw["kafka"], self.source, made) == len(made)

    def driver(self, **wiring):
        """A driver that has claimed the operator."""
        driver = OperatorDriver(Wiring(spark=self.spark, application=self.application, name=self.name, **wiring))
        driver.start()
        return driver

    def run(self):
        """Everything in the input is processed and published."""
        driver = self.driver()
        driver.run(Event(), until_caught_up=True)
        return driver


@pytest.fixture
def world(spark, broker, topic, tmp_path, new_lake):
    """`world(until=..., buffer=...)`: a world with topics of its own; `beside="calm"`: another application."""

    def make(*, output=True, years_ahead=False, beside="", **operator):
        configs = {"message_timestamp_after_max_ms": str(2**62)} if years_ahead else {}
        out = topic(partitions=PARTITIONS) if output else None
        source, folder = topic(partitions=PARTITIONS, **configs), tmp_path / beside
        return World(spark, broker, new_lake(folder / "lake"), folder, source, out, operator, beside or "test")

    return make
