"""What tests share: one embedded broker a session, and topics of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests import hypothesis_profile, quick_java  # noqa: F401
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic

quick_java.use()

NewTopic = Callable[..., str]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """An embedded broker on free ports, with an empty data folder."""
    with Broker.start(tmp_path_factory.mktemp("broker"), paths.jars("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def topic(broker: Broker) -> NewTopic:
    """`topic(partitions=1, max_message_bytes="1000")` creates a topic and gives its name, which no other test has."""
    numbers = itertools.count()
    options = {"bootstrap.servers": broker.bootstrap}

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{os.getpid()}-{next(numbers)}"
        create_topic(options, name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        return name

    return create


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The fast tests run first; otherwise the order stays."""
    items.sort(key=lambda item: item.get_closest_marker("fast") is None)
