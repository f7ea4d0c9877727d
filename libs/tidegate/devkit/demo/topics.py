"""The topics of the demo: what its input is produced to, and what its operators write."""

from __future__ import annotations

from tidegate.devkit.demo.departures import PARTITIONS
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.kafka.topics import create_topic, topic_names
from tidegate.runtime.publishing.topics import configured

DEPARTURES, DEPARTURES_BY_AIRPORT, WEATHER = "departures", "departures-by-airport", "weather"


def topics_of(application: Application) -> list[str]:
    """Return the topics that the application's operators read and write."""
    operators = application.operators.values()
    return sorted({topic for operator in operators for topic in (*operator.inputs, *configured(operator).topics)})


def create_missing(application: Application) -> list[str]:
    """Create the topics of the input and of the application that do not exist; return their names."""
    needed = {DEPARTURES, DEPARTURES_BY_AIRPORT, WEATHER, *topics_of(application)}
    missing = sorted(needed - {*topic_names(application.kafka)})
    for topic in missing:
        create_topic(application.kafka, topic, PARTITIONS)
    return missing
