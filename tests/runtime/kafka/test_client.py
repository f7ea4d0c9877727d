"""Sending requests: the receiver, and what happens without a response."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import MetadataRequest

from tests.patience import PATIENCE_S
from tests.runtime.kafka.peers import unused
from tidegate.contracts.errors import EngineError, UserError
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.kafka.client import KafkaClient, client
from tidegate.runtime.kafka.topics import create_topic

NewTopic = Callable[..., str]


@pytest.fixture
def kafka(broker: Broker) -> KafkaClient:
    return client({"bootstrap.servers": broker.bootstrap})


@pytest.mark.broker
def test_a_topic_has_an_id_and_a_leader_for_each_partition(kafka: KafkaClient, topic: NewTopic) -> None:
    name = topic(partitions=3)
    found = kafka.topic(name)
    assert list(found.leaders) == [0, 1, 2]
    assert -1 not in found.leaders.values()
    assert found == kafka.topic(name)


@pytest.mark.broker
def test_a_re_created_topic_has_a_different_id(kafka: KafkaClient, broker: Broker) -> None:
    options, name = {"bootstrap.servers": broker.bootstrap}, unused("again")
    create_topic(options, name, 1)
    before = kafka.topic(name)
    admin = AdminClient(options)
    admin.delete_topics([name])[name].result(30)
    create_topic(options, name, 1)
    assert kafka.topic(name).id != before.id


@pytest.mark.broker
def test_a_topic_that_does_not_exist_is_a_user_error_and_is_not_created(kafka: KafkaClient) -> None:
    name = unused("missing")
    for _ in range(2):
        with pytest.raises(UserError, match=f"topic {name} does not exist"):
            kafka.topic(name)
    with pytest.raises(UserError, match="does not exist"):
        kafka.max_message_bytes(name)


@pytest.mark.broker
def test_the_largest_batch_size_is_that_of_the_topic(kafka: KafkaClient, topic: NewTopic) -> None:
    assert kafka.max_message_bytes(topic(max_message_bytes="12345")) == 12345


@pytest.mark.broker
def test_a_closed_client_connects_again(kafka: KafkaClient, topic: NewTopic) -> None:
    name = topic()
    kafka.topic(name)
    kafka.close()
    assert kafka.topic(name).name == name


@pytest.mark.broker
def test_a_forked_process_has_its_own_client(broker: Broker, topic: NewTopic) -> None:
    options, name = {"bootstrap.servers": broker.bootstrap}, topic()
    own = client(options)
    own.topic(name)
    queue = multiprocessing.get_context("fork").Queue()

    def child() -> None:
        queue.put((client(options) is own, client(options).topic(name).id))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    is_same, topic_id = queue.get(timeout=PATIENCE_S)
    process.join(PATIENCE_S)
    assert (is_same, topic_id) == (False, own.topic(name).id)
    assert client(options) is own


@pytest.mark.fast
def test_an_unreachable_broker_is_reported_with_the_remedy() -> None:
    nobody = KafkaClient({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(EngineError, match=r"no Kafka broker answers at 127\.0\.0\.1:1") as failed:
        nobody.send(MetadataRequest(topics=[]), timeout_s=0.1)
    assert "tidegate kafka start" in failed.value.remedy


@pytest.mark.fast
def test_an_unresponsive_server_costs_only_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        quiet = KafkaClient({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
        begun = time.monotonic()
        with pytest.raises(EngineError, match="no Kafka broker answers"):
            quiet.send(MetadataRequest(topics=[]), timeout_s=0.2)
        assert time.monotonic() - begun < 5


@pytest.mark.fast
def test_one_client_per_process_and_options() -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "client.id": f"{os.getpid()}"}
    assert client(options) is client(dict(options))
    assert client(options) is not client(options | {"client.id": "other"})
