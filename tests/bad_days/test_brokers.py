"""The broker is unavailable at the start or later: the service waits, logs that, continues, and ends on request."""

from __future__ import annotations

import logging
from time import monotonic

import pytest

from tests.bad_days.conftest import PARTITIONS, numbered, produce, published, wait_for
from tests.end_to_end.conftest import World
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.batch_loop.retries import LOG_INTERVAL_S
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]


class Fragile:
    """A broker that can be stopped and started again at the same address."""

    def __init__(self, folder):
        self._folder, self._broker = folder, Broker.start(folder, paths.jars("broker"))
        self.bootstrap, self._port = self._broker.bootstrap, self._broker.port

    def stop(self):
        self._broker.stop()

    def start(self):
        self._broker = Broker.start(self._folder, paths.jars("broker"), port=self._port)


@pytest.fixture
def fragile(tmp_path):
    broker = Fragile(tmp_path / "broker")
    yield broker
    broker.stop()


def test_the_service_waits_for_a_broker_at_the_start_and_later_until_a_signal(
    spark, fragile, tmp_path, running, caplog, new_lake
):
    options = {"bootstrap.servers": fragile.bootstrap}
    for topic in ("in", "out"):
        create_topic(options, topic, PARTITIONS)
    here = World(
        spark,
        fragile,
        new_lake(tmp_path / "lake"),
        tmp_path,
        "in",
        "out",
        {"buffer": {"max_keys": 0, "when_full": "emit"}},
    )

    fragile.stop()
    began = monotonic()
    with caplog.at_level(logging.INFO, "tidegate"):
        driver = running(here)
        driver.wait("waiting", fragile.bootstrap)
        fragile.start()
        driver.wait("running")
    told = [record.getMessage() for record in caplog.records if record.name == "tidegate"]
    assert told[0].startswith("updates waits, for 0 s: no Kafka broker answers at ")
    assert sum("waits" in line for line in told) <= 1 + (monotonic() - began) / LOG_INTERVAL_S
    assert sum("continues" in line for line in told) == 1
    assert not any("Traceback" in line for line in told)

    produce(fragile.bootstrap, "in", *numbered(1, 2, 3))
    wait_for(lambda: published(fragile.bootstrap, "out") == [1, 2, 3], "it runs")
    fragile.stop()
    driver.wait("waiting", fragile.bootstrap)
    fragile.start()
    produce(fragile.bootstrap, "in", *numbered(4, 5))
    wait_for(lambda: published(fragile.bootstrap, "out") == [1, 2, 3, 4, 5], "it goes on")

    fragile.stop()
    driver.wait("waiting", fragile.bootstrap)
    assert driver.end() is None
    driver.wait("drained")
