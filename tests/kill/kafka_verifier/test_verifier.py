"""Kafka's own verifier of exactly-once applications finds no fault in Tidegate through kills."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.kill.harness import PARTITIONS
from tests.kill.kafka_verifier.echo_min_sum import DATA, OUTPUTS, READERS, application
from tests.kill.kafka_verifier.verifier import Verifier
from tests.kill.service import Start, in_turn
from tidegate.contracts.naming import group_id
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic

KILLS = int(os.environ.get("VERIFIER_KILLS", "50"))
LONGEST_LIFE_S = 6.0


@pytest.fixture
def own_broker(tmp_path):
    """A broker that no other test uses, because the verifier's topics have fixed names."""
    with Broker.start(tmp_path / "broker", paths.jars("broker")) as broker:
        for name in (DATA, *OUTPUTS):
            create_topic({"bootstrap.servers": broker.bootstrap}, name, PARTITIONS)
        yield broker


@pytest.mark.kill
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(3_600)
def test_kafka_s_verifier_finds_every_record_once_and_in_order_through_kills(own_broker, tmp_path, say):
    app = application(own_broker.bootstrap, tmp_path)
    file = tmp_path / "verified.yaml"
    file.write_text(app.to_yaml())
    verifier, lives = Verifier(own_broker.bootstrap, tmp_path), random.Random(KILLS)
    with in_turn([Start(file=file)] * KILLS + [Start(file=file, until_caught_up=True)] * 2) as services:
        with verifier.producing():
            for number in range(1, KILLS + 1):
                service = next(services).go()
                service.wait_ready()
                time.sleep(lives.uniform(0.0, LONGEST_LIFE_S))
                service.kill()
                say(f"killed {number} of {KILLS}")
        for service in services:  # what the first operator writes at last is new to the second one
            service.go().wait_end()
    verifier.take_offsets_of({topic: group_id(app.name, operator) for topic, operator in READERS.items()})
    assert "ALL-RECORDS-DELIVERED" in (printed := verifier.verify()), printed
