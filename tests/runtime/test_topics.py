"""Topics through kafka-python, against the embedded broker."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient

from tests.conftest import NewTopic
from tidegate.contracts.errors import UserError
from tidegate.runtime.kafka import topics

pytestmark = pytest.mark.broker


def test_a_created_topic_has_its_partitions_and_keeps_historical_event_times(
    admin: KafkaAdminClient, topic: NewTopic
) -> None:
    name = topic(3, max_message_bytes="1000")
    (described,) = topics.describe(admin, [name])
    assert described.partitions == 3
    assert described.configs == {"max.message.bytes": "1000", "retention.ms": "-1"}
    assert name in topics.names(admin)


def test_a_topic_that_exists_is_a_user_error(admin: KafkaAdminClient, topic: NewTopic) -> None:
    with pytest.raises(UserError, match="exists already"):
        topics.create(admin, topic(), partitions=1)


def test_a_topic_that_does_not_exist_is_a_user_error_that_names_it(admin: KafkaAdminClient, topic: NewTopic) -> None:
    with pytest.raises(UserError, match="does not exist") as refused:
        topics.describe(admin, [topic(), "absent"])
    assert refused.value.value == "absent"


@pytest.mark.parametrize(("name", "configs"), [("a/b", {}), ("fine", {"retention.ms": "soon"}), ("fine", {"odd": "1"})])
def test_a_name_or_config_that_kafka_refuses_is_a_user_error(
    admin: KafkaAdminClient, name: str, configs: dict[str, str]
) -> None:
    with pytest.raises(UserError, match="Kafka refuses the topic"):
        topics.create(admin, name, partitions=1, configs=configs)
