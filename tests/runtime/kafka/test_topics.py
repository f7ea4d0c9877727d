"""Topics through kafka-python, against the embedded broker."""

from __future__ import annotations

import pytest

from tests.conftest import NewTopic
from tidegate.contracts.errors import EngineError, UserError
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.kafka.topics import create_topic, describe_topics, topic_names


@pytest.fixture
def options(broker: Broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


@pytest.mark.broker
def test_a_created_topic_has_its_partitions_and_keeps_historical_event_times(
    options: dict[str, str], topic: NewTopic
) -> None:
    name = topic(3, max_message_bytes="1000")
    (described,) = describe_topics(options, [name])
    assert described.partitions == 3
    assert described.configs == {"max.message.bytes": "1000", "retention.ms": "-1"}
    assert name in topic_names(options)


@pytest.mark.broker
def test_kafkas_own_topics_are_not_listed(options: dict[str, str], topic: NewTopic) -> None:
    topic()
    assert not [name for name in topic_names(options) if name.startswith("__")]


@pytest.mark.broker
def test_a_topic_that_exists_is_a_user_error(options: dict[str, str], topic: NewTopic) -> None:
    with pytest.raises(UserError, match="exists already"):
        create_topic(options, topic(), 1)


@pytest.mark.broker
def test_a_topic_that_does_not_exist_is_a_user_error_that_names_it(options: dict[str, str], topic: NewTopic) -> None:
    with pytest.raises(UserError, match="does not exist") as refused:
        describe_topics(options, [topic(), "absent"])
    assert refused.value.value == "absent"


@pytest.mark.broker
@pytest.mark.parametrize(
    ("name", "partitions", "configs"),
    [("a/b", 1, {}), ("fine", 1, {"retention.ms": "soon"}), ("fine", 1, {"odd": "1"}), ("fine", -3, {})],
)
def test_a_topic_that_kafka_refuses_is_a_user_error(
    options: dict[str, str], name: str, partitions: int, configs: dict[str, str]
) -> None:
    with pytest.raises(UserError, match="Kafka refuses the topic"):
        create_topic(options, name, partitions, configs)


@pytest.mark.fast
def test_a_missing_broker_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="no Kafka broker answers"):
        topic_names({"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "100"})
