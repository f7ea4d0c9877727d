"""Creates, lists and describes topics.

Topics that Tidegate creates have unlimited retention by default: a broker deletes by the records' own timestamps, so
with an ordinary retention it would delete records with old event times on arrival.
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
class TopicDescription:
    """A topic as described by the cluster; `configs` holds the settings that differ from the broker's defaults."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str]


def create_topic(
    options: Mapping[str, str], name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create the topic and wait until every partition has a leader.

    Raises UserError if the topic already exists or Kafka refuses it.
    """
    wanted = {"num_partitions": partitions, "configs": DEFAULT_CONFIGS | dict(configs or {})}
    with admin_client(options, name) as admin:
        admin.create_topics({name: wanted}, wait_for_metadata=True)


def topic_names(options: Mapping[str, str]) -> list[str]:
    """Return the sorted names of all topics except Kafka's internal ones."""
    with admin_client(options, "all topics") as admin:
        return sorted(name for name in admin.list_topics() if not name.startswith("__"))


def describe_topics(options: Mapping[str, str], names: Sequence[str]) -> list[TopicDescription]:
    """Return the topics with these names, in this order. Raise UserError if one does not exist."""
    with admin_client(options, ", ".join(names)) as admin:
        found = {topic["name"]: topic for topic in admin.describe_topics(list(names))}
        _require_all(found)
        configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in names])["topic"]
    return [_topic(found[name], configs[name]) for name in names]


def max_message_bytes(options: Mapping[str, str], name: str) -> int:
    """Return the size in bytes of the largest record batch that the topic accepts (max.message.bytes)."""
    wanted = ConfigResource(ConfigResourceType.TOPIC, name, configs={"max.message.bytes": None})
    with admin_client(options, name) as admin:
        found = admin.describe_configs([wanted], config_filter="all")
    return int(found["topic"][name]["max.message.bytes"]["value"])


def _require_all(found: Mapping[str, dict[str, Any]]) -> None:
    for name, topic in found.items():
        if topic["error_code"] == _UNKNOWN_TOPIC:
            raise UserError("the topic does not exist", value=name, remedy=f"tidegate topics create {name}")


def _topic(metadata: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]) -> TopicDescription:
    return TopicDescription(
        name=metadata["name"],
        topic_id=str(metadata["topic_id"]),
        partitions=len(metadata["partitions"]),
        configs={key: config["value"] for key, config in sorted(configs.items())},
    )


@contextmanager
def admin_client(options: Mapping[str, str], value: str) -> Iterator[KafkaAdminClient]:
    """Yield kafka-python's admin client; raise its errors as Tidegate's, with `value`."""
    client(options).probe()  # reports why a connection fails, which kafka-python's admin client does not
    with explained(value):
        admin = KafkaAdminClient(**kafka_python_options(options))
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def explained(value: str) -> Iterator[None]:
    """Raise errors of kafka-python inside the block as Tidegate's, with `value`."""
    try:
        yield
    except TopicAlreadyExistsError as cause:
        raise UserError("the topic exists already", value=value, remedy="use it, or choose another name") from cause
    except (InvalidTopicError, InvalidConfigurationError, InvalidPartitionsError) as cause:
        raise UserError(
            f"Kafka refuses the topic: {cause}", value=value, remedy="correct what Kafka reports"
        ) from cause
    except KafkaError as cause:
        raise EngineError(f"Kafka failed: {cause}", value=value, remedy="check the broker, then try again") from cause
