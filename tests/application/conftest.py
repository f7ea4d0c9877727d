"""A broker with the topics of the documented programs, and one Spark session for all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.running_pages import empty
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.spark.session import open_session

INPUTS = ("departures", "weather", "flights", "gates", "visits", "arrivals", "events", "limits")
OUTPUTS = (
    "carrier-updates",
    "flights-with-weather",
    "worst-gates",
    "arrival-updates",
    "alerts",
    "storm-delays",
    "worst-delays",
    "crowded-hours",
)


@pytest.fixture(scope="module")
def kafka(broker: Broker) -> Iterator[dict[str, str]]:
    """The broker with the topics of the pages, for the programs too. It is empty afterwards."""
    options = {"bootstrap.servers": broker.bootstrap}
    for topic in INPUTS + OUTPUTS:
        create_topic(options, topic, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap)
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        patch.setattr(sys, "path", [*sys.path])
        yield options
    empty(broker)


@pytest.fixture(scope="module")
def spark(kafka: dict[str, str]) -> Iterator[Any]:
    """One Spark session for all programs; one that other tests have started stays."""
    with open_session("tests", "local[2]") as session:
        yield session
