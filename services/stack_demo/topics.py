"""`python -m services.stack_demo.topics FILE`: create all topics of the file that do not exist.

Services refuse to start without their topics, so the stack creates them first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.devkit.demo.departures import PARTITIONS
from tidegate.runtime.configuration.application import Application, load
from tidegate.runtime.kafka.topics import create_topic, topic_names
from tidegate.runtime.publishing.topics import configured


def named(application: Application) -> list[str]:
    """Return the topics that the application's operators read and write."""
    operators = application.operators.values()
    return sorted({topic for operator in operators for topic in (operator.input, *configured(operator).topics)})


def main() -> None:
    """Create the missing topics; existing topics are not changed."""
    application = load(Path(sys.argv[1]))
    for topic in sorted({*named(application)} - {*topic_names(application.kafka)}):
        create_topic(application.kafka, topic, PARTITIONS)
        print(f"created {topic}, {PARTITIONS} partitions")


if __name__ == "__main__":
    main()
