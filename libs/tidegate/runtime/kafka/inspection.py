"""Reads the effective settings of topics and of a broker.

`topics` shows only the settings that differ from the broker's defaults; here every setting has its effective value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType

from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import PROBE_TIMEOUT_S, client
from tidegate.runtime.kafka.topics import admin_client


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A topic: its id, its number of partitions, the first offset of each (`starts`), and its settings."""

    name: str
    id: str
    partitions: int
    starts: Mapping[int, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The existing topics by name, and the settings of one broker."""

    topics: Mapping[str, Inspected]
    settings: Mapping[str, str]


def inspect(options: Mapping[str, str], names: Sequence[str]) -> Cluster:
    """Return the cluster with those of the named topics that exist.

    Raises Unavailable if no broker responds, UserError if authentication fails.
    """
    kafka = client(options)
    kafka.probe(PROBE_TIMEOUT_S)
    found = kafka.existing_topics(names)
    broker, settings = _settings(options, sorted(found))
    topics = {
        name: Inspected(
            name=name,
            id=topic.id,
            partitions=len(topic.leaders),
            starts=offsets.earliest(kafka, name),
            settings=settings.get(name, {}),
        )
        for name, topic in found.items()
    }
    return Cluster(topics=topics, settings=broker)


def _settings(options: Mapping[str, str], names: Sequence[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the settings of one broker, and the settings of each topic."""
    with admin_client(options, "the cluster's settings") as admin:
        broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
        wanted = [ConfigResource(ConfigResourceType.BROKER, broker)]
        wanted += [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        found = admin.describe_configs(wanted, config_filter="all")
    return _values(found["broker"][broker]), {
        name: _values(settings) for name, settings in found.get("topic", {}).items()
    }


def _values(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: str(setting["value"]) for name, setting in settings.items()}
