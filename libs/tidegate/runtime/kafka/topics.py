"""Creating and looking at topics.

Topics that Tidegate creates keep their records for ever unless told otherwise: a broker deletes by the records' own
timestamps, so with an ordinary retention it would delete historical event times on arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaError,
    TopicAlreadyExistsError,
)

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.options import kafka_python_options

DEFAULT_CONFIGS = {"retention.ms": "-1"}
_UNKNOWN_TOPIC = 3


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic as the cluster knows it; `configs` holds what differs from the broker's defaults."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str]


def create_topic(
    options: Mapping[str, str], name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """The topic exists, with a leader for every partition. UserError if it existed before or Kafka refuses it."""
    wanted = {"num_partitions": partitions, "configs": DEFAULT_CONFIGS | dict(configs or {})}
    with admin_client(options, name) as admin:
        admin.create_topics({name: wanted}, wait_for_metadata=True)


def topic_names(options: Mapping[str, str]) -> list[str]:
    """The names of all topics but Kafka's own, sorted."""
    with admin_client(options, "all topics") as admin:
        return sorted(name for name in admin.list_topics() if not name.startswith("__"))


def describe_topics(options: Mapping[str, str], names: Sequence[str]) -> list[Topic]:
    """The topics of these names, in this order. UserError for one that does not exist."""
    with admin_client(options, ", ".join(names)) as admin:
        found = {topic["name"]: topic for topic in admin.describe_topics(list(names))}
        _require_all(found)
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])["topic"]
    return [_topic(found[name], configs[name]) for name in names]


def max_message_bytes(options: Mapping[str, str], name: str) -> int:
    """The size of the largest record batch that the topic takes."""
    wanted = ConfigResource(ConfigResourceType.TOPIC, name, configs={"max.message.bytes": None})
    with admin_client(options, name) as admin:
        found = admin.describe_configs([wanted], config_filter="all")
    return int(found["topic"][name]["max.message.bytes"]["value"])


def _require_all(found: Mapping[str, dict[str, Any]]) -> None:
    for name, topic in found.items():
        if topic["error_code"] == _UNKNOWN_TOPIC:
            raise UserError("the topic does not exist", value=name, remedy=f"tidegate topics create {name}")


def _topic(metadata: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]) -> Topic:
    return Topic(
        name=metadata["name"],
        topic_id=str(metadata["topic_id"]),
        partitions=len(metadata["partitions"]),
        configs={key: config["value"] for key, config in sorted(configs.items())},
    )


@contextmanager
def admin_client(options: Mapping[str, str], value: str) -> Iterator[KafkaAdminClient]:
    """kafka-python's admin client; its errors leave as Tidegate's, with this value."""
    client(options).probe()  # it says why it cannot, which kafka-python's admin client does not
    with explained(value):
        admin = KafkaAdminClient(**kafka_python_options(options))
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def explained(value: str) -> Iterator[None]:
    """Errors of kafka-python inside leave as Tidegate's, with this value."""
    try:
        yield
    except TopicAlreadyExistsError as cause:
        raise UserError("the topic exists already", value=value, remedy="use it, or choose another name") from cause
    except (InvalidTopicError, InvalidConfigurationError, InvalidPartitionsError) as cause:
        raise UserError(f"Kafka refuses the topic: {cause}", value=value, remedy="mend it as Kafka says") from cause
    except KafkaError as cause:
        raise EngineError(f"Kafka failed: {cause}", value=value, remedy="look at the broker, then try again") from cause
